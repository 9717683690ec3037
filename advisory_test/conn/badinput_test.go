package conn_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/proxy"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// A sessionCall is a call of package sqlconn on a connection.
type sessionCall struct {
	attempt string // as its error names it
	keyed   bool
	call    func(ctx context.Context, conn sqlconn.Conn, k advisory.Key, opts ...advisory.ConnOption) error
}

var sessionCalls = []sessionCall{
	{"try lock", true, func(ctx context.Context, conn sqlconn.Conn, k advisory.Key, opts ...advisory.ConnOption) error {
		ok, err := sqlconn.TryLock(ctx, conn, k, opts...)
		return falseOr(ok, err)
	}},
	{"lock", true, func(ctx context.Context, conn sqlconn.Conn, k advisory.Key, opts ...advisory.ConnOption) error {
		return sqlconn.Lock(ctx, conn, k, opts...)
	}},
	{"unlock", true, func(ctx context.Context, conn sqlconn.Conn, k advisory.Key, opts ...advisory.ConnOption) error {
		return sqlconn.Unlock(ctx, conn, k, opts...)
	}},
	{"unlock all", false, func(ctx context.Context, conn sqlconn.Conn, _ advisory.Key, _ ...advisory.ConnOption) error {
		return sqlconn.UnlockAll(ctx, conn)
	}},
	{"list held locks", false, func(ctx context.Context, conn sqlconn.Conn, _ advisory.Key, _ ...advisory.ConnOption) error {
		held, err := sqlconn.Held(ctx, conn)
		return falseOr(held != nil, err)
	}},
}

// A sessionDoCall is Do or TryDo of package sqlconn.
type sessionDoCall struct {
	attempt string
	call    func(ctx context.Context, open func(context.Context) (sqlconn.Conn, error), k advisory.Key, fn func(context.Context, sqlconn.Conn) error, opts ...advisory.ConnOption) error
}

var sessionDos = []sessionDoCall{
	{"lock", func(ctx context.Context, open func(context.Context) (sqlconn.Conn, error), k advisory.Key, fn func(context.Context, sqlconn.Conn) error, opts ...advisory.ConnOption) error {
		return sqlconn.Do(ctx, open, k, fn, opts...)
	}},
	{"lock", func(ctx context.Context, open func(context.Context) (sqlconn.Conn, error), k advisory.Key, fn func(context.Context, sqlconn.Conn) error, opts ...advisory.ConnOption) error {
		ran, err := sqlconn.TryDo(ctx, open, k, fn, opts...)
		return falseOr(ran, err)
	}},
}

// A txCall is a call of package xact in a transaction.
type txCall struct {
	attempt string
	call    func(ctx context.Context, tx xact.Tx, keys []advisory.Key, opts ...advisory.TxOption) error
}

var oneKey = []txCall{
	{"try lock", func(ctx context.Context, tx xact.Tx, keys []advisory.Key, opts ...advisory.TxOption) error {
		ok, err := xact.TryLock(ctx, tx, keys[0], opts...)
		return falseOr(ok, err)
	}},
	{"lock", func(ctx context.Context, tx xact.Tx, keys []advisory.Key, opts ...advisory.TxOption) error {
		return xact.Lock(ctx, tx, keys[0], opts...)
	}},
}

var manyKeys = []txCall{
	{"lock all of", func(ctx context.Context, tx xact.Tx, keys []advisory.Key, opts ...advisory.TxOption) error {
		return xact.LockAll(ctx, tx, keys, opts...)
	}},
	{"try lock all of", func(ctx context.Context, tx xact.Tx, keys []advisory.Key, opts ...advisory.TxOption) error {
		ok, err := xact.TryLockAll(ctx, tx, keys, opts...)
		return falseOr(ok, err)
	}},
	{"try lock any of", func(ctx context.Context, tx xact.Tx, keys []advisory.Key, opts ...advisory.TxOption) error {
		k, ok, err := xact.TryLockAny(ctx, tx, keys, opts...)
		return falseOr(ok || k != advisory.Key{}, err)
	}},
}

var txCalls = append(oneKey, manyKeys...)

// A txDoCall is Do or TryDo of package xact.
type txDoCall struct {
	attempt string
	call    func(ctx context.Context, begin func(context.Context, *sql.TxOptions) (xact.Tx, error), k advisory.Key, fn func(context.Context, xact.Tx) error, opts ...advisory.TxOption) error
}

var txDos = []txDoCall{
	{"lock", func(ctx context.Context, begin func(context.Context, *sql.TxOptions) (xact.Tx, error), k advisory.Key, fn func(context.Context, xact.Tx) error, opts ...advisory.TxOption) error {
		return xact.Do(ctx, begin, k, fn, harness.OptionsAs[xact.BeginOption](opts)...)
	}},
	{"try lock", func(ctx context.Context, begin func(context.Context, *sql.TxOptions) (xact.Tx, error), k advisory.Key, fn func(context.Context, xact.Tx) error, opts ...advisory.TxOption) error {
		ran, err := xact.TryDo(ctx, begin, k, fn, harness.OptionsAs[xact.BeginOption](opts)...)
		return falseOr(ran, err)
	}},
}

var errNotFalse = errors.New("a result beside the error")

// falseOr is err, of a call that must not return anything beside it.
func falseOr(got bool, err error) error {
	if got && err != nil {
		return errors.Join(errNotFalse, err)
	}
	return err
}

// A bench has what calls need: good, so that each test can replace one thing.
type bench struct {
	*testing.T
	*harness.Pool
	link *proxy.Proxy
	conn sqlconn.Conn
	tx   xact.Tx
}

// TestBadInput has each call refuse what makes no sense, or name what is wrong, without
// a nil dereference and without hanging.
func TestBadInput(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	harness.EachDriverProxied(t, func(t *testing.T, p *harness.Pool, link *proxy.Proxy) {
		for name, test := range map[string]func(b bench){
			"ZeroKeyIsRefused":              zeroKeyIsRefused,
			"NilIsToldNotDereferenced":      nilIsToldNotDereferenced,
			"ClosedAndFinished":             closedAndFinished,
			"ContextHasEnded":               contextHasEnded,
			"UnlockOfNothing":               unlockOfNothing,
			"BadOptions":                    badOptions,
			"FailedTransaction":             failedTransaction,
			"ServerThatCannotBeReached":     serverThatCannotBeReached,
			"ServerThatRefusesTheRole":      serverThatRefusesTheRole,
			"ErrorsAndPanicsOfOpenAndBegin": errorsAndPanicsOfOpenAndBegin,
		} {
			t.Run(name, func(t *testing.T) { test(bench{t, p, link, p.NewConn(t), p.Tx(t, nil)}) })
		}
	})
}

// refuses fails the test unless the call fails as want, if given, with a text that
// contains texts, and without anything having been sent. It must not hang.
func (b bench) refuses(what string, want error, call func() error, texts ...string) {
	b.Helper()
	b.link.Reset()
	b.fails(what, want, call, texts...)
	if s := b.link.Stats(); s.BytesUp != 0 || s.Connections != 0 {
		b.Errorf("%s: something was sent: %+v", what, s)
	}
}

// fails is refuses of what may be sent.
func (b bench) fails(what string, want error, call func() error, texts ...string) error {
	b.Helper()
	done := make(chan error, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				b.Errorf("%s: panic: %v", what, v)
				done <- nil
			}
		}()
		done <- call()
	}()
	select {
	case err := <-done:
		b.failed(what, want, err, texts...)
		return err
	case <-time.After(harness.Patience):
		b.Fatalf("%s: has not returned within %v", what, harness.Patience)
		return nil
	}
}

func (b bench) failed(what string, want, err error, texts ...string) {
	b.Helper()
	switch {
	case err == nil:
		b.Errorf("%s: no error", what)
		return
	case errors.Is(err, errNotFalse):
		b.Errorf("%s: %v", what, err)
	case want != nil && !errors.Is(err, want):
		b.Errorf("%s: %v; want %v", what, err, want)
	}
	for _, s := range append(texts, "pgadvisory: ") {
		if !strings.Contains(err.Error(), s) {
			b.Errorf("%s: %q does not say %q", what, err, s)
		}
	}
}

func zeroKeyIsRefused(b bench) {
	ctx := context.Background()
	for what, k := range map[string]advisory.Key{
		"the zero Key":         {},
		"Name of a missing id": advisory.Name("account", ""),
		"Name of nothing":      advisory.Name(),
	} {
		for _, c := range sessionCalls {
			if c.keyed {
				b.refuses("sqlconn, "+what, advisory.ErrInvalidKey, func() error { return c.call(ctx, b.conn, k) }, c.attempt)
			}
		}
		for _, c := range sessionDos {
			b.refuses("sqlconn, "+what, advisory.ErrInvalidKey, func() error { return c.call(ctx, b.Pin, k, noWork) }, c.attempt)
		}
		for _, c := range txCalls {
			b.refuses("xact, "+what, advisory.ErrInvalidKey, func() error { return c.call(ctx, b.tx, []advisory.Key{k}) }, c.attempt)
		}
		for _, c := range manyKeys {
			b.refuses("xact, beside others "+what, advisory.ErrInvalidKey, func() error { return c.call(ctx, b.tx, []advisory.Key{harness.Key, k}) }, c.attempt)
		}
		for _, c := range txDos {
			b.refuses("xact, "+what, advisory.ErrInvalidKey, func() error { return c.call(ctx, b.NewTx, k, noTxWork) }, c.attempt)
		}
	}
	for _, c := range manyKeys {
		b.refuses("no keys", nil, func() error { return c.call(ctx, b.tx, nil) }, c.attempt, "no keys")
		b.refuses("no keys", nil, func() error { return c.call(ctx, b.tx, []advisory.Key{}) }, c.attempt, "no keys")
	}
}

func nilIsToldNotDereferenced(b bench) {
	ctx := context.Background()
	for what, conn := range map[string]sqlconn.Conn{
		"nil":               nil,
		"(*sql.Conn)(nil)":  (*sql.Conn)(nil),
		"(*sqlx.Conn)(nil)": (*sqlx.Conn)(nil),
		"&sqlx.Conn{}":      &sqlx.Conn{},
		"(*lossyConn)(nil)": (*lossyConn)(nil),
		"&lossyConn{}":      &lossyConn{},
	} {
		for _, c := range sessionCalls {
			b.refuses(what, nil, func() error { return c.call(ctx, conn, harness.Key) }, c.attempt, "conn is nil")
		}
		open := func(context.Context) (sqlconn.Conn, error) { return conn, nil }
		for _, c := range sessionDos {
			b.refuses("open returns "+what, nil, func() error { return c.call(ctx, open, harness.Key, noWork) }, c.attempt, "4820", "open returned a nil connection")
		}
	}
	for what, tx := range map[string]xact.Tx{
		"nil":             nil,
		"(*sql.Tx)(nil)":  (*sql.Tx)(nil),
		"(*sqlx.Tx)(nil)": (*sqlx.Tx)(nil),
		"&sqlx.Tx{}":      &sqlx.Tx{},
		"&lateTx{}":       &lateTx{},
	} {
		for _, c := range txCalls {
			b.refuses(what, nil, func() error { return c.call(ctx, tx, []advisory.Key{harness.Key}) }, c.attempt, "4820", "tx is nil")
		}
		begin := func(context.Context, *sql.TxOptions) (xact.Tx, error) { return tx, nil }
		for _, c := range txDos {
			b.refuses("begin returns "+what, nil, func() error { return c.call(ctx, begin, harness.Key, noTxWork) }, c.attempt, "4820", "begin returned a nil transaction")
		}
	}
	var none context.Context
	for _, c := range sessionCalls {
		b.refuses("ctx", nil, func() error { return c.call(none, b.conn, harness.Key) }, c.attempt, "ctx is nil")
	}
	for _, c := range sessionDos {
		b.refuses("ctx", nil, func() error { return c.call(none, b.Pin, harness.Key, noWork) }, c.attempt, "4820", "ctx is nil")
	}
	for _, c := range txCalls {
		b.refuses("ctx", nil, func() error { return c.call(none, b.tx, []advisory.Key{harness.Key}) }, c.attempt, "4820", "ctx is nil")
	}
	for _, c := range txDos {
		b.refuses("ctx", nil, func() error { return c.call(none, b.NewTx, harness.Key, noTxWork) }, c.attempt, "4820", "ctx is nil")
	}
	for _, c := range sessionDos {
		b.refuses("open", nil, func() error { return c.call(ctx, nil, harness.Key, noWork) }, c.attempt, "4820", "open is nil")
		b.refuses("fn", nil, func() error { return c.call(ctx, b.Pin, harness.Key, nil) }, c.attempt, "4820", "fn is nil")
	}
	for _, c := range txDos {
		b.refuses("begin", nil, func() error { return c.call(ctx, nil, harness.Key, noTxWork) }, c.attempt, "4820", "begin is nil")
		b.refuses("fn", nil, func() error { return c.call(ctx, b.NewTx, harness.Key, nil) }, c.attempt, "4820", "fn is nil")
	}
}

func closedAndFinished(b bench) {
	ctx := context.Background()
	b.conn.Close()
	for _, c := range sessionCalls {
		b.refuses("a closed connection", sql.ErrConnDone, func() error { return c.call(ctx, b.conn, harness.Key) }, c.attempt, "the connection is closed")
	}
	closed := func(context.Context) (sqlconn.Conn, error) { return b.conn, nil }
	for _, c := range sessionDos {
		b.refuses("open returns a closed connection", sql.ErrConnDone, func() error { return c.call(ctx, closed, harness.Key, noWork) }, "4820", "the connection is closed")
	}
	b.tx.Rollback()
	committed := b.Pool.Tx(b, nil)
	committed.Commit()
	for what, tx := range map[string]xact.Tx{"rolled back": b.tx, "committed": committed} {
		for _, c := range txCalls {
			b.refuses(what, sql.ErrTxDone, func() error { return c.call(ctx, tx, []advisory.Key{harness.Key, advisory.Int64(1)}) }, c.attempt, "the transaction has ended")
		}
		begin := func(context.Context, *sql.TxOptions) (xact.Tx, error) { return tx, nil }
		for _, c := range txDos {
			b.refuses("begin returns one "+what, sql.ErrTxDone, func() error { return c.call(ctx, begin, harness.Key, noTxWork) }, c.attempt, "4820", "the transaction has ended")
		}
	}
}

func contextHasEnded(b bench) {
	errWhy := errors.New("the node is shutting down")
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	caused, cancelCause := context.WithCancelCause(context.Background())
	cancelCause(errWhy)
	for _, ended := range []struct {
		ctx  context.Context
		want error
		text string
	}{
		{cancelled, context.Canceled, "context canceled"},
		{late, context.DeadlineExceeded, "deadline exceeded"},
		{caused, context.Canceled, errWhy.Error()},
		{caused, errWhy, "context canceled"},
	} {
		for _, c := range sessionCalls {
			switch c.attempt {
			case "unlock", "unlock all": // work all the same
				continue
			}
			b.refuses("sqlconn", ended.want, func() error { return c.call(ended.ctx, b.conn, harness.Key) }, ended.text)
		}
		for _, c := range sessionDos {
			b.refuses("sqlconn", ended.want, func() error { return c.call(ended.ctx, b.Pin, harness.Key, noWork) }, "4820", ended.text)
		}
		for _, c := range txCalls {
			b.refuses("xact", ended.want, func() error { return c.call(ended.ctx, b.tx, []advisory.Key{harness.Key}) }, "4820", ended.text)
		}
		for _, c := range txDos {
			b.refuses("xact", ended.want, func() error { return c.call(ended.ctx, b.NewTx, harness.Key, noTxWork) }, "4820", ended.text)
		}
		b.refuses("sqlconn", advisory.ErrNotAcquired, func() error { return sqlconn.Lock(ended.ctx, b.conn, harness.Key) })
		b.refuses("xact", advisory.ErrNotAcquired, func() error { return xact.Lock(ended.ctx, b.tx, harness.Key) })
	}
	// Both are as good as before.
	if !harness.TryLock(b, b.conn, harness.Key) {
		b.Error("not free")
	}
	harness.Unlock(b, b.conn, harness.Key)
	if ok, err := xact.TryLock(context.Background(), b.tx, harness.Key); !ok || err != nil {
		b.Error(ok, err)
	}
}

func unlockOfNothing(b bench) {
	b.fails("nothing is held", advisory.ErrNotHeld, func() error { return sqlconn.Unlock(context.Background(), b.conn, harness.Key) }, "unlock", "4820", "exclusive")
	b.fails("nothing is held", advisory.ErrNotHeld, func() error { return sqlconn.Unlock(context.Background(), b.conn, harness.Key, advisory.Shared) }, "unlock", "4820", "shared")
	harness.TryLock(b, b.conn, harness.Key, advisory.Shared)
	b.fails("it is held shared", advisory.ErrNotHeld, func() error { return sqlconn.Unlock(context.Background(), b.conn, harness.Key) }, "unlock", "4820", "holds it shared")
	harness.Unlock(b, b.conn, harness.Key, advisory.Shared)
	if err := sqlconn.UnlockAll(context.Background(), b.conn); err != nil {
		b.Errorf("UnlockAll of nothing: %v", err)
	}
}

type nilOption struct{ advisory.Option }

type nilObserver struct{}

func (*nilObserver) Observe(context.Context, advisory.Event) {}

func badOptions(b bench) {
	ctx := context.Background()
	for _, o := range []struct {
		option advisory.Option
		text   string
	}{
		{advisory.MaxWait(-time.Second), "MaxWait(-1s) is negative"},
		{advisory.MaxWait(-1), "MaxWait(-1ns) is negative"},
		{advisory.Mode(7), "not a mode"},
		{nil, "option 1 of 2 is nil"},
		{(*nilOption)(nil), "option 1 of 2 is nil"},
		{advisory.WithObserver((*nilObserver)(nil)), "WithObserver was given a nil"},
	} {
		for _, c := range sessionCalls {
			if c.keyed {
				b.refuses("sqlconn", nil, func() error { return c.call(ctx, b.conn, harness.Key, o.option, advisory.Label("x")) }, c.attempt, "4820", o.text)
			}
		}
		for _, c := range sessionDos {
			b.refuses("sqlconn", nil, func() error { return c.call(ctx, b.Pin, harness.Key, noWork, o.option, advisory.Label("x")) }, "4820", o.text)
		}
		for _, c := range txCalls {
			b.refuses("xact", nil, func() error { return c.call(ctx, b.tx, []advisory.Key{harness.Key}, o.option, advisory.Label("x")) }, c.attempt, "4820", o.text)
		}
		for _, c := range txDos {
			b.refuses("xact", nil, func() error { return c.call(ctx, b.NewTx, harness.Key, noTxWork, o.option, advisory.Label("x")) }, c.attempt, "4820", o.text)
		}
	}
}

// In a transaction that has failed the error says so, and what is to be done. The
// connection of a try is kept.
func failedTransaction(b bench) {
	ctx := context.Background()
	said := func(what string, call func() error, texts ...string) {
		b.Helper()
		err := b.fails(what, nil, call, append(texts, "the transaction has failed, roll it back first")...)
		var state interface{ SQLState() string }
		if !errors.As(err, &state) || state.SQLState() != "25P02" {
			b.Errorf("%s: not the driver's error: %v", what, err)
		}
	}
	b.tx.ExecContext(ctx, "SELECT 1/0")
	for _, c := range txCalls {
		said("xact", func() error { return c.call(ctx, b.tx, []advisory.Key{harness.Key, advisory.Int64(1)}) }, c.attempt)
	}
	pid := harness.SessionOf(b, b.conn)
	failTransaction(b.T, b.conn)
	for _, c := range sessionCalls {
		switch c.attempt {
		case "try lock", "lock", "list held locks":
			said("sqlconn", func() error { return c.call(ctx, b.conn, harness.Key) }, c.attempt)
		}
	}
	harness.DoSQL(b, b.conn, "ROLLBACK")
	if harness.SessionOf(b, b.conn) != pid {
		b.Error("the session was replaced")
	}
}

func serverThatCannotBeReached(b bench) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	addr := listener.Addr().String()
	listener.Close()
	nowhere := b.By.Open(b, "postgres://nobody@"+addr+"/none?sslmode=disable")
	b.cannotConnect(nowhere, func(what string, err error) {
		var network *net.OpError
		if !errors.As(err, &network) || network.Op != "dial" {
			b.Errorf("%s: not the driver's error: %v", what, err)
		}
	})
}

func serverThatRefusesTheRole(b bench) {
	server := pgtest.SharedServer(b)
	u, err := url.Parse(server.URL())
	if err != nil {
		b.Fatal(err)
	}
	noDatabase := *u
	noDatabase.Path = "/pgadvisory_no_such_database"
	cases := map[string]string{"3D000": noDatabase.String()}
	if server.Kind() != "url" { // else it may trust everybody
		wrong := *u
		wrong.User = url.UserPassword(u.User.Username(), "wrong")
		cases["28P01"] = wrong.String()
	}
	for state, url := range cases {
		b.cannotConnect(b.By.Open(b, url), func(what string, err error) {
			var e interface{ SQLState() string }
			if !errors.As(err, &e) || e.SQLState() != state {
				b.Errorf("%s: not the driver's error: %v", what, err)
			}
		})
	}
}

// cannotConnect makes each call that connects, with a context that ends and with one that
// does not.
func (b bench) cannotConnect(p *harness.Pool, is func(what string, err error)) {
	b.Helper()
	ends, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for _, ctx := range []context.Context{context.Background(), ends} {
		for _, c := range sessionDos {
			is(c.attempt, b.fails("sqlconn", nil, func() error { return c.call(ctx, p.Pin, harness.Key, noWork) }, c.attempt+" 4820"))
		}
		for _, c := range txDos {
			is(c.attempt, b.fails("xact", nil, func() error { return c.call(ctx, p.NewTx, harness.Key, noTxWork) }, "begin a transaction to "+c.attempt+" 4820"))
		}
	}
	if n := p.Stats().InUse; n != 0 {
		b.Errorf("%d connections are in use", n)
	}
}

func errorsAndPanicsOfOpenAndBegin(b bench) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	open := func(context.Context) (sqlconn.Conn, error) { return nil, harness.ErrWork }
	for _, c := range sessionDos {
		b.refuses("open fails", harness.ErrWork, func() error { return c.call(ctx, open, harness.Key, noWork) }, c.attempt, "4820")
		if v := harness.PanicOf(func() {
			c.call(ctx, func(context.Context) (sqlconn.Conn, error) { panic(harness.ErrWork) }, harness.Key, noWork)
		}); v != harness.ErrWork {
			b.Errorf("open panics: %v", v)
		}
	}
	begin := func(context.Context, *sql.TxOptions) (xact.Tx, error) { return nil, harness.ErrWork }
	for _, c := range txDos {
		b.refuses("begin fails", harness.ErrWork, func() error { return c.call(ctx, begin, harness.Key, noTxWork) }, "begin a transaction to "+c.attempt, "4820")
		if v := harness.PanicOf(func() {
			c.call(ctx, func(context.Context, *sql.TxOptions) (xact.Tx, error) { panic(harness.ErrWork) }, harness.Key, noTxWork)
		}); v != harness.ErrWork {
			b.Errorf("begin panics: %v", v)
		}
	}
}
