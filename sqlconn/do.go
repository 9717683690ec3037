package sqlconn

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/dbconn"
	"github.com/pgadvisory/pgadvisory/internal/given"
	"github.com/pgadvisory/pgadvisory/internal/held"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/settings"
	"github.com/pgadvisory/pgadvisory/internal/sqlprivate"
	"github.com/pgadvisory/pgadvisory/internal/statement"
	"github.com/pgadvisory/pgadvisory/internal/work"
)

// Do opens a connection, waits for key on it, and runs fn with it: if the lock goes,
// so does the connection that fn works on. Afterwards it releases the lock, also
// after a panic, and closes the connection. open is db.Conn, sqlx's db.Connx or the
// like; fn gets what it returns, must not close it, and should do its work in the
// database on it.
//
// fn's error is returned as it is. If the connection was found not to hold the lock
// any more after fn, the error is also [advisory.ErrLost]. Otherwise errors are
// those of [Lock], or open's, wrapped.
//
// fn should commit its transactions and close its rows. If it leaves one of them open on the
// connection, Do closes that, so that the server rolls back what was not committed and
// then lets go of the lock, and says so. With rows left open it is not known whether the
// lock was held until then, and the error is also ErrLost. If it has taken another key on the
// connection, by this package, and leaves that locked, Do closes the connection and says so, too.
//
// Through a proxy, and where the driver does not show whether there is one, Do first checks that
// locks exclude between two connections of the pool, once for each pool, for up to ten seconds.
// Without an answer, or behind a pooler in transaction mode, it fails; see [SessionPooler].
//
// If the connection turns out to be dead, as pooled connections are after a restart of the server,
// Do opens another, up to two more than were idle in the pool. fn runs once at most.
//
// Do needs one connection of the pool, and each that fn opens besides is one
// more: in a pool too small for both fn would wait for ever.
func Do[C Conn](ctx context.Context, open func(context.Context) (C, error), key advisory.Key, fn func(context.Context, C) error, opts ...advisory.ConnOption) error {
	_, err := do(ctx, open, key, fn, opts, func(conn Conn, s settings.Call, start time.Time) (bool, error) {
		err := lock(ctx, conn, key, s, start)
		return err == nil, err
	})
	return err
}

// TryDo is [Do] with one try instead of a wait: ran is false, without an error, if
// the key is not free.
func TryDo[C Conn](ctx context.Context, open func(context.Context) (C, error), key advisory.Key, fn func(context.Context, C) error, opts ...advisory.ConnOption) (ran bool, err error) {
	return do(ctx, open, key, fn, opts, func(conn Conn, s settings.Call, _ time.Time) (bool, error) {
		return try(ctx, conn, key, s)
	})
}

func do[C Conn](ctx context.Context, open func(context.Context) (C, error), k advisory.Key, fn func(context.Context, C) error, opts []advisory.ConnOption, lock locking) (ran bool, err error) {
	s, err := read(k, opts)
	switch {
	case err != nil:
	case open == nil:
		err = errors.New("open is nil")
	case fn == nil:
		err = work.ErrNilFn
	}
	if err != nil {
		return false, lockfn.Error("lock", k, s.Mode, err)
	}
	start := time.Now()
	for dead, most := 0, 0; ; dead++ {
		conn, err := opened(ctx, open)
		if err != nil {
			return false, lockfn.Error("open a connection to lock", k, s.Mode, err)
		}
		if dead == 0 {
			most = fresh
			if db := sqlprivate.Pool(conn); db != nil {
				most += db.Stats().Idle
			}
		}
		again := func(err error) bool { return errors.Is(err, errGone) && dead < most && ctx.Err() == nil }
		if !s.SessionPooler {
			check, err := needsCheck(ctx, conn)
			if check || err != nil {
				closed(conn, errors.Is(err, bound.ErrNoAnswer)) // the check may need it
			}
			if err != nil && again(err) {
				continue
			}
			if err == nil && check {
				err = checkPool(ctx, open)
			}
			if err != nil {
				return false, lockfn.Error("lock", k, s.Mode, bound.Ended(ctx, err))
			}
			s.SessionPooler = true // it is known now
			if check {
				continue
			}
		}
		ran, err := doOn(ctx, conn, k, fn, s, start, lock, again)
		if err != errAgain {
			return ran, err
		}
	}
}

// locking takes the key of a Do on conn.
type locking func(conn Conn, s settings.Call, start time.Time) (granted bool, err error)

// doOn is do on conn, which it closes. It returns errAgain if again says so of lock's error:
// then nothing was taken and fn has not run, so that nothing happens twice.
func doOn[C Conn](ctx context.Context, conn C, k advisory.Key, fn func(context.Context, C) error, s settings.Call, start time.Time, lock locking, again func(error) bool) (ran bool, err error) {
	var driver dbconn.Driver
	hung := false // a call was given up: do not wait for conn any more
	released := false
	defer func() {
		if !closed(conn, hung) {
			driver.Close()
			if released { // else the error of the release is told, and a dead link may be slow to close
				err = errors.Join(err, errLeftOpen)
			}
		}
	}()
	ran, err = lock(conn, s, start)
	if err != nil && again(err) {
		return false, errAgain
	}
	observe(ctx, conn, k, s, start, ran, err)
	if !ran || err != nil {
		hung = errors.Is(err, bound.ErrNoAnswer)
		return false, err
	}

	var owner held.Owner
	conn.Raw(func(driverConn any) error {
		owner = held.OwnerOf(driverConn)
		return driver.Keep(driverConn)
	})
	before := owner.Keys()
	since := time.Now()
	defer func() {
		uerr := unlock(ctx, conn, k, s, since, true)
		switch {
		case uerr == nil:
			released = true
			if lerr := leftLocked(ctx, conn, owner.Keys(), before); lerr != nil {
				err = errors.Join(err, lerr)
			}
		case errors.Is(uerr, errLeftOpen):
			err = errors.Join(err, uerr)
		case errors.Is(uerr, statement.ErrBusy):
			err = errors.Join(err, fmt.Errorf("%w; whether it held the lock until then is not known: %w: %w", errLeftOpen, advisory.ErrLost, uerr))
		case errors.Is(uerr, bound.ErrNoAnswer):
			hung = true
			err = errors.Join(err, fmt.Errorf("%w, or fn left a transaction or rows open on the connection: %w", advisory.ErrLost, uerr))
		case errors.Is(uerr, sql.ErrConnDone) && driver.Valid():
			err = errors.Join(err, fmt.Errorf("%w: fn closed it, so that it went back to its pool and holds the lock still: leave that to Do", uerr))
		case errors.Is(uerr, sql.ErrConnDone): // not all drivers say which it is
			err = errors.Join(err, fmt.Errorf("%w, or fn closed the connection, which is left to Do, and it went back to its pool with the lock: %w", advisory.ErrLost, uerr))
		default:
			err = errors.Join(err, fmt.Errorf("%w: %w", advisory.ErrLost, uerr))
		}
	}()
	return true, fn(ctx, conn)
}

// errLeftOpen is an error of fn's that is no loss: the lock was held until what fn had left
// open was rolled back.
var errLeftOpen = errors.New("fn left a transaction or rows open on the connection: it was closed, and what was not committed was rolled back")

// leftLocked discards conn if it holds one of keys: that would go back to the pool with it. It is
// an error of fn's unless it was there before, left by an earlier user of the connection.
func leftLocked(ctx context.Context, conn Conn, keys, before []advisory.Key) error {
	if len(keys) == 0 {
		return nil
	}
	err := release(ctx, conn, func(c *call) (left error) {
		for _, k := range keys {
			err := c.alreadyHeld(k)
			if errors.Is(err, advisory.ErrAlreadyHeld) && !slices.Contains(before, k) {
				return fmt.Errorf("pgadvisory: %w: %s", errLeftLocked, k)
			}
			left = errors.Join(left, err)
		}
		return left
	})
	if !errors.Is(err, errLeftLocked) {
		return nil
	}
	return err
}

var errLeftLocked = errors.New("fn left another key locked on the connection, which was closed, so that it is free")

// closed closes conn, and reports whether that is done: database/sql waits for rows and a
// transaction that are open on it. hung: a call was given up, and conn is not waited for.
func closed(conn Conn, hung bool) bool {
	closed := make(chan struct{})
	go func() {
		conn.Close()
		close(closed)
	}()
	if hung {
		return true
	}
	timer := time.NewTimer(bound.Abort)
	defer timer.Stop()
	select {
	case <-closed:
		return true
	case <-timer.C:
		return false
	}
}

// opened calls open in bounded time: a driver may not return from a handshake.
func opened[C Conn](ctx context.Context, open func(context.Context) (C, error)) (conn C, err error) {
	if ctx.Err() != nil {
		return conn, bound.Cause(ctx)
	}
	late, stop := bound.Context(ctx)
	defer stop()
	conn, err = bound.Call(late,
		func(context.Context) (C, error) { return open(ctx) },
		nil,
		func(conn C, err error) {
			if err == nil && !given.IsNil(conn) {
				conn.Close()
			}
		})
	if err == nil && given.IsNil(conn) {
		err = errors.New("open returned a nil connection")
	}
	return conn, bound.Ended(ctx, err)
}
