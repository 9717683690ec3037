package conn_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// A form is a way to take a lock. Its run makes one attempt, tells it of a grant, and
// releases the lock again.
type form struct {
	name   string
	waits  bool // another session holds the key until about the end of ctx
	undoes bool // whether a grant was undone can be seen
	keys   int  // 0: one
	naive  bool
	run    func(p *harness.Pool, a *attempt) error
}

var forms = []form{
	{name: "sqlconn.TryLock", undoes: true, run: onConn(func(a *attempt, conn sqlconn.Conn) (bool, error) {
		return sqlconn.TryLock(a.ctx, conn, a.key(), a.sessionOptions()...)
	})},
	{name: "sqlconn.Lock", undoes: true, run: onConn(lockConn)},
	{name: "sqlconn.Lock, waiting", waits: true, undoes: true, run: onConn(lockConn)},
	{name: "sqlconn.Lock, waiting in a transaction", waits: true, undoes: true, run: onConn(func(a *attempt, conn sqlconn.Conn) (bool, error) {
		if _, err := conn.ExecContext(context.Background(), "BEGIN"); err != nil {
			return false, err
		}
		ok, err := lockConn(a, conn)
		if _, cerr := conn.ExecContext(context.Background(), "COMMIT"); cerr != nil && !errors.Is(err, bound.ErrNoAnswer) {
			return false, unusable(cerr, err)
		}
		return ok, err
	})},
	{name: "sqlconn.Lock, PlainWait", waits: true, run: func(p *harness.Pool, a *attempt) error {
		conn, err := p.Pin(context.Background())
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := sqlconn.Lock(a.ctx, conn, a.key(), append(a.sessionOptions(), sqlconn.PlainWait())...); err != nil {
			return err // the connection is discarded
		}
		a.granted(conn)
		return sqlconn.Unlock(context.Background(), conn, a.key(), a.mode)
	}},
	{name: "sqlconn.TryDo", undoes: true, run: func(p *harness.Pool, a *attempt) error {
		ran, err := p.TryDo(a.ctx, a.key(), a.workOnConn, a.sessionOptions()...)
		return a.contended(ran, err)
	}},
	{name: "sqlconn.Do, waiting", waits: true, undoes: true, run: func(p *harness.Pool, a *attempt) error {
		return p.Do(a.ctx, a.key(), a.workOnConn, a.sessionOptions()...)
	}},
	{name: "xact.TryLock", undoes: true, run: inTx(mayHold, func(a *attempt, tx xact.Tx) (bool, error) {
		return xact.TryLock(a.ctx, tx, a.key(), a.txOptions()...)
	})},
	{name: "xact.Lock", undoes: true, run: inTx(mayHold, txLock)},
	{name: "xact.TryLockAll", keys: 3, run: inTx(holdsNothing, func(a *attempt, tx xact.Tx) (bool, error) {
		return xact.TryLockAll(a.ctx, tx, a.keys, a.txOptions()...)
	})},
	{name: "xact.TryLockAny", undoes: true, run: inTx(mayHold, func(a *attempt, tx xact.Tx) (bool, error) {
		_, ok, err := xact.TryLockAny(a.ctx, tx, a.keys, a.txOptions()...)
		return ok, err
	})},
	{name: "xact.Lock, waiting", waits: true, run: inTx(holdsNothing, txLock)},
	{name: "xact.LockAll, waiting", waits: true, keys: 3, run: inTx(holdsNothing, func(a *attempt, tx xact.Tx) (bool, error) {
		err := xact.LockAll(a.ctx, tx, a.keys, a.txOptions()...)
		return err == nil, err
	})},
	{name: "xact.TryDo, READ COMMITTED", run: txTryDo(sql.LevelReadCommitted)},
	{name: "xact.TryDo, REPEATABLE READ", run: txTryDo(sql.LevelRepeatableRead)},
	{name: "xact.Do, READ COMMITTED, waiting", waits: true, run: txDo(sql.LevelReadCommitted)},
	{name: "xact.Do, REPEATABLE READ, waiting", waits: true, run: txDo(sql.LevelRepeatableRead)},
}

func lockConn(a *attempt, conn sqlconn.Conn) (bool, error) {
	err := sqlconn.Lock(a.ctx, conn, a.key(), a.sessionOptions()...)
	return err == nil, err
}

func txLock(a *attempt, tx xact.Tx) (bool, error) {
	err := xact.Lock(a.ctx, tx, a.key(), a.txOptions()...)
	return err == nil, err
}

// onConn is a form on a pinned connection, which after an error must be usable and
// hold nothing.
func onConn(lock func(*attempt, sqlconn.Conn) (bool, error)) func(*harness.Pool, *attempt) error {
	return func(p *harness.Pool, a *attempt) error {
		conn, err := p.Pin(context.Background())
		if err != nil {
			return err
		}
		defer conn.Close()
		ok, err := lock(a, conn)
		if err != nil {
			return holdsNothing(a, conn, err)
		}
		if ok {
			a.granted(conn)
			err = sqlconn.Unlock(context.Background(), conn, a.key(), a.mode)
		}
		return a.contended(ok, err)
	}
}

// inTx is a form in a transaction that was begun without the ctx of the call. after
// looks at it after an error.
func inTx(after func(a *attempt, on querier, err error) error, lock func(*attempt, xact.Tx) (bool, error)) func(*harness.Pool, *attempt) error {
	return func(p *harness.Pool, a *attempt) error {
		tx, err := p.NewTx(context.Background(), nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		ok, err := lock(a, tx)
		if err != nil {
			return after(a, tx, err)
		}
		if ok {
			a.granted(tx)
			err = tx.Commit()
		}
		return a.contended(ok, err)
	}
}

func txTryDo(level sql.IsolationLevel) func(*harness.Pool, *attempt) error {
	return func(p *harness.Pool, a *attempt) error {
		ran, err := p.TxTryDo(a.ctx, a.key(), a.workInTx, append(harness.OptionsAs[xact.BeginOption](a.txOptions()), xact.TxOptions(&sql.TxOptions{Isolation: level}))...)
		return a.contended(ran, err)
	}
}

func txDo(level sql.IsolationLevel) func(*harness.Pool, *attempt) error {
	return func(p *harness.Pool, a *attempt) error {
		return p.TxDo(a.ctx, a.key(), a.workInTx, append(harness.OptionsAs[xact.BeginOption](a.txOptions()), xact.TxOptions(&sql.TxOptions{Isolation: level}))...)
	}
}

func (a *attempt) workOnConn(_ context.Context, conn sqlconn.Conn) error { a.granted(conn); return nil }

func (a *attempt) workInTx(_ context.Context, tx xact.Tx) error { a.granted(tx); return nil }

func (a *attempt) sessionOptions() []advisory.ConnOption {
	o := []advisory.ConnOption{a.mode}
	if a.maxWait > 0 {
		o = append(o, advisory.MaxWait(a.maxWait))
	}
	return o
}

func (a *attempt) txOptions() []advisory.TxOption {
	o := []advisory.TxOption{a.mode}
	if a.maxWait > 0 {
		o = append(o, advisory.MaxWait(a.maxWait))
	}
	return o
}

// contended returns an error for a try that was told that somebody else holds its
// key: nobody does.
func (a *attempt) contended(granted bool, err error) error {
	if err == nil && !granted {
		return fmt.Errorf("%v: told that another holds it", a.keys)
	}
	return err
}

// holdsNothing checks that after err the connection or transaction works, and
// holds nothing.
func holdsNothing(a *attempt, on querier, err error) error {
	held, herr := heldBy(on)
	switch {
	case errors.Is(err, bound.ErrNoAnswer): // it was given up
	case herr != nil:
		return unusable(herr, err)
	case held != "":
		return fmt.Errorf("holds %s after the error %v", held, err)
	}
	return err
}

// mayHold checks that after err the transaction works. It may hold the key until its
// end.
func mayHold(a *attempt, on querier, err error) error {
	held, herr := heldBy(on)
	if herr == nil && held == listed(a.keys, a.mode) {
		a.undone++
		return err
	}
	return holdsNothing(a, on, err)
}

func unusable(now, err error) error {
	return fmt.Errorf("unusable (%v) after the error %v", now, err)
}
