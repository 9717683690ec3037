package conn_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/proxy"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// A doubt is a call after which it is not known what its session holds.
type doubt struct {
	name string
	// call makes it for k, and returns the pid of the session.
	call func(t *testing.T, p *harness.Pool, link *proxy.Proxy, k advisory.Key) (pid int)
}

var doubts = []doubt{
	{"Unlock without an answer", func(t *testing.T, p *harness.Pool, link *proxy.Proxy, k advisory.Key) int {
		conn, pid := pinned(t, p)
		harness.TryLock(t, conn, k)
		ctx := endsWithout(t, link, "pg_advisory_unlock")
		if err := sqlconn.Unlock(ctx, conn, k); err == nil {
			t.Error("no error")
		}
		conn.Close()
		return pid
	}},
	{"Unlock in a failed transaction", func(t *testing.T, p *harness.Pool, _ *proxy.Proxy, k advisory.Key) int {
		conn, pid := pinned(t, p)
		harness.TryLock(t, conn, k)
		failTransaction(t, conn)
		err := sqlconn.Unlock(context.Background(), conn, k)
		if err == nil || !strings.Contains(err.Error(), "the transaction has failed") {
			t.Error(err)
		}
		conn.Close()
		return pid
	}},
	{"UnlockAll in a failed transaction", func(t *testing.T, p *harness.Pool, _ *proxy.Proxy, k advisory.Key) int {
		conn, pid := pinned(t, p)
		harness.TryLock(t, conn, k)
		failTransaction(t, conn)
		if err := sqlconn.UnlockAll(context.Background(), conn); err == nil {
			t.Error("no error")
		}
		conn.Close()
		return pid
	}},
	{"TryLock without an answer", func(t *testing.T, p *harness.Pool, link *proxy.Proxy, k advisory.Key) int {
		conn, pid := pinned(t, p)
		ctx := endsWithout(t, link, "pg_try_advisory_lock")
		if ok, err := sqlconn.TryLock(ctx, conn, k); ok || !harness.IsEnd(err) {
			t.Error(ok, err)
		}
		conn.Close()
		return pid
	}},
	{"Lock without an answer, waiting", func(t *testing.T, p *harness.Pool, link *proxy.Proxy, k advisory.Key) int {
		other, _ := pinned(t, p)
		harness.TryLock(t, other, k)
		conn, pid := pinned(t, p)
		ctx := endsWithout(t, link, aSlice)
		if err := sqlconn.Lock(ctx, conn, k); !harness.IsNotAcquiredEnd(err) {
			t.Error(err)
		}
		conn.Close()
		link.Thaw()
		harness.Unlock(t, other, k)
		other.Close()
		return pid
	}},
	{"PlainWait that ends", func(t *testing.T, p *harness.Pool, _ *proxy.Proxy, k advisory.Key) int {
		other, _ := pinned(t, p)
		harness.TryLock(t, other, k)
		conn, pid := pinned(t, p)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- sqlconn.Lock(ctx, conn, k, sqlconn.PlainWait()) }()
		waits(t, other, pid) // before that nothing is in doubt
		cancel()
		if err := <-done; !harness.IsNotAcquiredEnd(err) {
			t.Error(err)
		}
		conn.Close()
		harness.Unlock(t, other, k)
		other.Close()
		return pid
	}},
	{"Do, fn leaves a failed transaction", func(t *testing.T, p *harness.Pool, _ *proxy.Proxy, k advisory.Key) (pid int) {
		err := p.Do(context.Background(), k, func(_ context.Context, conn sqlconn.Conn) error {
			pid = harness.SessionOf(t, conn)
			failTransaction(t, conn)
			return harness.ErrWork
		})
		if !errors.Is(err, harness.ErrWork) || harness.IsLost(err) || !strings.Contains(err.Error(), "fn left a transaction") {
			t.Error(err)
		}
		return pid
	}},
	{"TryDo, fn panics in a failed transaction", func(t *testing.T, p *harness.Pool, _ *proxy.Proxy, k advisory.Key) (pid int) {
		v := harness.PanicOf(func() {
			p.TryDo(context.Background(), k, func(_ context.Context, conn sqlconn.Conn) error {
				pid = harness.SessionOf(t, conn)
				failTransaction(t, conn)
				panic(harness.ErrWork)
			})
		})
		if v != harness.ErrWork {
			t.Errorf("panic: %v", v)
		}
		return pid
	}},
	{"Do, fn panics on a dead link", func(t *testing.T, p *harness.Pool, link *proxy.Proxy, k advisory.Key) (pid int) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		v := harness.PanicOf(func() {
			p.Do(ctx, k, func(_ context.Context, conn sqlconn.Conn) error {
				pid = harness.SessionOf(t, conn)
				link.Freeze(proxy.Both)
				cancel()
				panic(harness.ErrWork)
			})
		})
		if v != harness.ErrWork {
			t.Errorf("panic: %v", v)
		}
		return pid
	}},
	// These sessions are healthy all the time; only their holder cannot know it.
	{"Unlock that is not sent", func(t *testing.T, p *harness.Pool, _ *proxy.Proxy, k advisory.Key) (pid int) {
		err := sqlconn.Do(context.Background(), lossy(p, "pg_advisory_unlock", false), k, func(_ context.Context, conn *lossyConn) error {
			pid = harness.SessionOf(t, conn)
			return nil
		})
		if !harness.IsLost(err) || !errors.Is(err, errLost) {
			t.Error(err)
		}
		return pid
	}},
	{"TryLock whose answer is lost", func(t *testing.T, p *harness.Pool, _ *proxy.Proxy, k advisory.Key) int {
		conn, err := lossy(p, "pg_try_advisory_lock", true)(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		pid := harness.SessionOf(t, conn)
		if ok, err := sqlconn.TryLock(context.Background(), conn, k); ok || !errors.Is(err, errLost) {
			t.Error(ok, err)
		}
		conn.Close()
		return pid
	}},
	{"Lock whose answer is lost, waiting", func(t *testing.T, p *harness.Pool, _ *proxy.Proxy, k advisory.Key) int {
		other, _ := pinned(t, p)
		harness.TryLock(t, other, k)
		conn, err := lossy(p, aSlice, true)(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		pid := harness.SessionOf(t, conn)
		done := make(chan error, 1)
		go func() { done <- sqlconn.Lock(context.Background(), conn, k) }()
		waits(t, other, pid)
		harness.Unlock(t, other, k)
		if err := <-done; !errors.Is(err, errLost) {
			t.Error(err)
		}
		other.Close()
		conn.Close()
		return pid
	}},
	{"xact.TryDo without an answer", func(t *testing.T, p *harness.Pool, link *proxy.Proxy, k advisory.Key) (pid int) {
		return txInDoubt(t, p, link, k, "pg_try_advisory_lock(")
	}},
	{"xact.TryDo without an answer, starting over", func(t *testing.T, p *harness.Pool, link *proxy.Proxy, k advisory.Key) (pid int) {
		return txInDoubt(t, p, link, k, "ROLLBACK AND CHAIN")
	}},
}

// waits returns when the session of pid waits for an advisory lock, as other shows.
func waits(t *testing.T, other sqlconn.Conn, pid int) {
	t.Helper()
	harness.Eventually(t, "it waits", func() bool {
		return harness.Ask[bool](t, other, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = $1 AND NOT granted)", pid)
	})
}

// A lossyConn loses a statement on the way there, or its answer on the way back.
type lossyConn struct {
	*sql.Conn
	text   string // of the statement
	answer bool
}

func lossy(p *harness.Pool, text string, answer bool) func(context.Context) (*lossyConn, error) {
	return func(ctx context.Context) (*lossyConn, error) {
		conn, err := p.Conn(ctx)
		return &lossyConn{conn, text, answer}, err
	}
}

func (c *lossyConn) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	lost := strings.Contains(query, c.text)
	if lost && !c.answer {
		return nil, errLost
	}
	r, err := c.Conn.ExecContext(ctx, query, args...)
	if lost && err == nil {
		return nil, errLost
	}
	return r, err
}

func (c *lossyConn) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	lost := strings.Contains(query, c.text)
	if lost && !c.answer {
		return nil, errLost
	}
	rows, err := c.Conn.QueryContext(ctx, query, args...)
	if lost && err == nil {
		for rows.Next() { // until the server has done it all
		}
		rows.Close()
		return nil, errLost
	}
	return rows, err
}

// txInDoubt loses the answer to a statement of a TryDo that has, or may have, the lock at
// session level.
func txInDoubt(t *testing.T, p *harness.Pool, link *proxy.Proxy, k advisory.Key, statement string) (pid int) {
	begin := func(ctx context.Context, o *sql.TxOptions) (xact.Tx, error) {
		tx, err := p.NewTx(ctx, o)
		if err == nil {
			pid = harness.SessionOf(t, tx)
		}
		return tx, err
	}
	ctx := endsWithout(t, link, statement)
	ran, err := xact.TryDo(ctx, begin, k, noTxWork, xact.TxOptions(&sql.TxOptions{Isolation: sql.LevelRepeatableRead}))
	if ran || !harness.IsEnd(err) {
		t.Error(ran, err)
	}
	return pid
}

func pinned(t *testing.T, p *harness.Pool) (sqlconn.Conn, int) {
	t.Helper()
	conn := p.NewConn(t)
	return conn, harness.SessionOf(t, conn)
}

// endsWithout returns a context that ends when the link has died, of the answer to the
// next statement that contains text.
func endsWithout(t *testing.T, link *proxy.Proxy, text string) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	dead := link.FreezeAfter(func(m proxy.Message) bool {
		return m.Direction == proxy.Up && strings.Contains(m.Text, text)
	})
	go func() {
		select {
		case <-dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx
}

// failTransaction begins a transaction in which no statement works any more, not an
// unlock either.
func failTransaction(t *testing.T, conn sqlconn.Conn) {
	t.Helper()
	harness.DoSQL(t, conn, "BEGIN")
	if _, err := conn.ExecContext(context.Background(), "SELECT 1/0"); err == nil {
		t.Error("1/0 is a number")
	}
}

// A session in doubt ends, and does not go back into any pool.
func TestInDoubtTheSessionEnds(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	harness.AtOnce(t, func(all *harness.Together) { // most of them wait
		for _, d := range harness.AllPools {
			url := pgtest.URL(t)
			for i, c := range doubts {
				all.Start(d.Name+"/"+c.name, func(t *testing.T) {
					p, link := d.Proxied(t, url)
					k := advisory.Int64(int64(i))
					pid := c.call(t, p, link, k)
					link.Thaw()
					if pid == 0 {
						t.Fatal("the call did not get as far as that")
					}
					noSession(p, t, pid)
					// The pool is as good as before.
					conn, _ := pinned(t, p)
					if !harness.TryLock(t, conn, k) {
						t.Error("the lock is not free")
					}
					harness.Unlock(t, conn, k)
					conn.Close()
				})
			}
		}
	})
}

// A call that ends in no doubt leaves its session in the pool.
func TestWithoutDoubtTheSessionIsPooled(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	for _, d := range harness.AllPools {
		t.Run(d.Name, func(t *testing.T) {
			url := pgtest.URL(t)
			busy := advisory.Name("busy")
			harness.TryLock(t, harness.Drivers[0].Open(t, url).NewConn(t), busy)
			if d.Pgxpool {
				url = harness.WithParameter(t, url, "pool_max_conns", "1")
			}
			p := d.Open(t, url)
			p.SetMaxOpenConns(1)
			pid := harness.SessionOf(t, p)

			ended, cancel := context.WithCancel(context.Background())
			cancel()
			soon := advisory.MaxWait(20 * time.Millisecond)
			onConn := func(call func(conn sqlconn.Conn)) func() {
				return func() {
					conn, err := p.Pin(context.Background())
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					call(conn)
				}
			}
			for name, call := range map[string]func(){
				"TryLock of a busy key":      onConn(func(c sqlconn.Conn) { sqlconn.TryLock(t.Context(), c, busy) }),
				"Lock that waits":            onConn(func(c sqlconn.Conn) { sqlconn.Lock(t.Context(), c, busy, soon) }),
				"Lock, ctx has ended":        onConn(func(c sqlconn.Conn) { sqlconn.Lock(ended, c, busy) }),
				"Unlock of what is not held": onConn(func(c sqlconn.Conn) { sqlconn.Unlock(t.Context(), c, busy) }),
				"Unlock, ctx has ended":      onConn(func(c sqlconn.Conn) { harness.TryLock(t, c, harness.Key); sqlconn.Unlock(ended, c, harness.Key) }),
				"TryLock of what is held": onConn(func(c sqlconn.Conn) {
					harness.TryLock(t, c, harness.Key)
					sqlconn.TryLock(t.Context(), c, harness.Key)
					harness.Unlock(t, c, harness.Key)
				}),
				"Do": func() { p.Do(t.Context(), harness.Key, noWork) },
				"Do, fn fails": func() {
					p.Do(t.Context(), harness.Key, func(context.Context, sqlconn.Conn) error { return harness.ErrWork })
				},
				"Do, fn panics": func() {
					harness.PanicOf(func() { p.Do(t.Context(), harness.Key, func(context.Context, sqlconn.Conn) error { panic(1) }) })
				},
				"TryDo of a busy key": func() { p.TryDo(t.Context(), busy, noWork) },
				"xact.Do":             func() { p.TxDo(t.Context(), harness.Key, noTxWork) },
				"xact.Do, fn fails": func() {
					p.TxDo(t.Context(), harness.Key, func(context.Context, xact.Tx) error { return harness.ErrWork })
				},
				"xact.Do that waits":       func() { p.TxDo(t.Context(), busy, noTxWork, soon) },
				"xact.TryDo of a busy key": func() { p.TxTryDo(t.Context(), busy, noTxWork) },
				"xact.Do under SERIALIZABLE": func() {
					p.TxDo(t.Context(), harness.Key, noTxWork, xact.TxOptions(&sql.TxOptions{Isolation: sql.LevelSerializable}))
				},
				"xact.Lock that waits":        func() { tx, _ := p.NewTx(t.Context(), nil); xact.Lock(t.Context(), tx, busy, soon); tx.Rollback() },
				"xact.TryLock, ctx has ended": func() { tx, _ := p.NewTx(t.Context(), nil); xact.TryLock(ended, tx, harness.Key); tx.Commit() },
				"xact.LockAll, some of it busy": func() {
					tx, _ := p.NewTx(t.Context(), nil)
					xact.LockAll(t.Context(), tx, []advisory.Key{harness.Key, busy}, soon)
					tx.Commit()
				},
			} {
				call()
				if now := harness.SessionOf(t, p); now != pid {
					t.Errorf("%s: the session was replaced", name)
					pid = now
				}
				if n := harness.Ask[int](t, p, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"); n != 0 {
					t.Errorf("%s: %d locks are left", name, n)
				}
			}
		})
	}
}
