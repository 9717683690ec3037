package xact

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/given"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/statement"
	"github.com/pgadvisory/pgadvisory/internal/wait"
	"github.com/pgadvisory/pgadvisory/internal/work"
)

// Do begins a transaction, waits for key in it, runs fn and commits. If fn returns an error or
// panics, or ctx has ended, Do rolls back. In both cases the lock is released by the end of the
// transaction. fn sees what the last holder committed, at every isolation level. fn must not end
// the transaction.
//
// begin is BeginTx of *sql.DB or *sql.Conn, BeginTxx of sqlx, or another function of this form. It
// should only begin: Do may restart the transaction before fn runs, which reverts settings such as
// those of SET LOCAL. [TxOptions] are passed to begin. Its ctx has the values of ctx, but ends only
// if ctx ends before the transaction has begun.
//
// If the connection turns out to be dead, as pooled connections are after a restart of the server, Do
// begins again on another: at most 20 times, with pauses of up to 50 ms. fn runs at most once.
//
// Do waits on the server, in slices of at most 400 ms that are shorter than deadlock_timeout, and
// restarts its transaction between them:
//
//   - A waiter delays CREATE INDEX CONCURRENTLY and VACUUM by one slice at most.
//   - The server logs nothing.
//   - Do detects the end of ctx after a slice.
//
// Do returns fn's error unchanged. It wraps an error of the commit; the work may then have been
// committed or not, as with every commit. Under SERIALIZABLE the commit may rarely fail with a
// serialization failure, even if all work is under the lock. The reason: the server releases the
// lock a moment before it marks the transaction as ended. Other errors are those of [Lock] and of
// begin.
//
// If the server does not answer, Do discards the connection. Otherwise the connection goes back to
// its pool without the lock.
func Do[T Tx](ctx context.Context, begin func(context.Context, *sql.TxOptions) (T, error), key advisory.Key, fn func(context.Context, T) error, opts ...BeginOption) error {
	_, err := do(ctx, "lock", begin, key, fn, opts, true)
	return err
}

// TryDo is [Do] with one try instead of a wait. If the key is not free, ran is false and err is
// nil. If the key is free and fn does nothing, TryDo takes three round trips under READ COMMITTED
// (BEGIN, the try, COMMIT), and four at the other levels.
func TryDo[T Tx](ctx context.Context, begin func(context.Context, *sql.TxOptions) (T, error), key advisory.Key, fn func(context.Context, T) error, opts ...BeginOption) (ran bool, err error) {
	return do(ctx, "try lock", begin, key, fn, opts, false)
}

func do[T Tx](ctx context.Context, op string, begin func(context.Context, *sql.TxOptions) (T, error), k advisory.Key, fn func(context.Context, T) error, opts []BeginOption, waits bool) (ran bool, err error) {
	start := time.Now()
	s, err := read(ctx, readBegin, []advisory.Key{k}, opts)
	switch {
	case err != nil:
	case begin == nil:
		err = errors.New("begin is nil")
	case fn == nil:
		err = work.ErrNilFn
	}
	if err != nil {
		return false, lockfn.Error(op, k, s.Mode, err)
	}
	tx, cancel, err := beginLive(ctx, begin, s.TxOptions)
	if lockfn.NotSupported(err) && onStandby(ctx, begin) {
		err = fmt.Errorf("%w: %w", lockfn.ErrStandby, err)
	}
	if err != nil {
		return false, lockfn.Error("begin a transaction to "+op, k, s.Mode, err)
	}
	o := &ownTx{ctx: ctx, tx: tx, cancel: cancel, key: k, settings: s, start: start}
	ended := false
	defer func() {
		if !ended { // fn panicked
			o.rollback()
		}
	}()
	granted, err := o.lock(waits)
	err = lockfn.Error(op, k, s.Mode, err)
	wait.Observe(ctx, k, s, start, granted && err == nil, err)
	if !granted || err != nil {
		ended = true
		o.rollback()
		return false, err
	}

	o.since = time.Now()
	err = fn(ctx, tx)
	ended = true
	return true, o.end(err)
}

// end commits the work. It rolls back if the work has returned an error, or ctx has ended.
func (o *ownTx) end(err error) error {
	if err == nil && o.ctx.Err() != nil {
		err = fmt.Errorf("pgadvisory: the work under lock %s (%v) was rolled back: %w", o.key, o.settings.Mode, bound.Cause(o.ctx))
	}
	if err != nil {
		o.rollback()
		return err
	}
	if err := o.commit(); err != nil {
		return fmt.Errorf("pgadvisory: commit the work under lock %s (%v): %w", o.key, o.settings.Mode, lockfn.Meaning(bound.Ended(o.ctx, err)))
	}
	return nil
}

// onStandby reports whether the server is a hot standby, after begin has failed there. A hot standby
// refuses to begin a transaction that may write, and a SERIALIZABLE one.
func onStandby[T Tx](ctx context.Context, begin func(context.Context, *sql.TxOptions) (T, error)) bool {
	tx, cancel, err := beginBounded(ctx, begin, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return false
	}
	o := &ownTx{ctx: ctx, tx: tx, cancel: cancel}
	defer o.rollback()
	late, stop := bound.Context(ctx)
	defer stop()
	rows, err := bound.Call(late, func(late context.Context) (int64, error) {
		return statement.Session{Ctx: late, On: tx}.Exec(lockfn.InRecovery)
	}, nil, func(int64, error) {})
	o.hung = errors.Is(err, bound.ErrNoAnswer)
	return err == nil && rows == 1
}

// beginBounded begins a transaction whose context does not end when ctx does; cancel ends it. It
// returns in bounded time after the end of ctx.
func beginBounded[T Tx](ctx context.Context, begin func(context.Context, *sql.TxOptions) (T, error), o *sql.TxOptions) (tx T, cancel context.CancelFunc, err error) {
	if ctx.Err() != nil {
		return tx, nil, bound.Cause(ctx)
	}
	txCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	untie := context.AfterFunc(ctx, cancel)
	late, stop := bound.Context(ctx)
	defer stop()
	tx, err = bound.Call(late,
		func(context.Context) (T, error) { return begin(txCtx, o) },
		nil,
		func(tx T, err error) {
			if err == nil && !given.IsNil(tx) {
				tx.Rollback()
			}
		})
	switch {
	case err == nil && given.IsNil(tx):
		err = errors.New("begin returned a nil transaction")
	case !untie():
		if err == nil {
			go tx.Rollback() // Rollback takes no context, and a driver may block in it
			err = bound.Cause(ctx)
		}
		err = bound.Ended(ctx, err)
	}
	if err != nil {
		cancel()
	}
	return tx, cancel, err
}
