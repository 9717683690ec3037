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

// Do opens a connection, waits for key on it, and runs fn with it. If the lock is lost, so is the
// connection that fn works on. After fn, even if fn panics, Do releases the lock and closes the
// connection.
//
// open is db.Conn, sqlx's db.Connx, or another function that returns a connection. fn gets the
// connection that open returned, must not close it, and should do its database work on it.
//
// Do returns fn's error unchanged. If the connection no longer held the lock after fn, the error also
// matches [advisory.ErrLost]. Other errors are those of [Lock], and those of open, wrapped.
//
// fn should commit its transactions, close its rows and release other keys. Otherwise Do closes the
// connection and returns an error:
//
//   - If a transaction is open, the server rolls it back, and then frees the lock.
//   - If rows are open, the server does the same. Do cannot know whether the lock was held until
//     then, so the error also matches ErrLost.
//   - If fn left another key locked that it took by this package, the server frees that key too.
//
// Through a proxy, if the driver does not show whether there is one, and on a server that is not
// PostgreSQL, Do first checks that locks exclude between two connections of the pool. It does so
// once for each pool, for up to ten seconds. Do fails if the check does not complete, or finds a pooler
// in transaction mode (see [SessionPooler]) or a session-level function that excludes nobody.
//
// If the connection turns out to be dead, as pooled connections are after a restart of the server, Do
// opens another. It discards at most two more than were idle in the pool. fn runs at most once.
//
// fn's ctx is the caller's. It does not end if the connection is lost: then fn's next statement on it
// fails. Do cannot check the connection while fn works on it. A connection serves one statement at a
// time, so a ping of Do would wait for fn's rows and delay fn's statements, or be taken for their
// answer. A glance at the socket would not detect a link that drops packets. Work that takes long
// outside of the database has two ways:
//
//   - It calls PingContext of its connection between its steps, while no rows are open.
//   - It runs under a Locker of package locker, whose connection is not that of the work. The ctx of such
//     work ends with the lock.
//
// Do uses one connection of the pool, and each connection that fn opens is an additional one. In a
// pool that is too small for both, fn waits without end.
func Do[C Conn](ctx context.Context, open func(context.Context) (C, error), key advisory.Key, fn func(context.Context, C) error, opts ...advisory.ConnOption) error {
	_, err := do(ctx, open, key, fn, opts, func(conn Conn, s settings.Call, start time.Time) (bool, error) {
		err := lock(ctx, conn, key, s, start)
		return err == nil, err
	})
	return err
}

// TryDo is [Do] with one try instead of a wait. If the key is not free, ran is false and err is nil. If
// the connection breaks during the try, its session may hold the lock until the server notices, and
// a second try, on another connection, then finds the key taken.
func TryDo[C Conn](ctx context.Context, open func(context.Context) (C, error), key advisory.Key, fn func(context.Context, C) error, opts ...advisory.ConnOption) (ran bool, err error) {
	return do(ctx, open, key, fn, opts, func(conn Conn, s settings.Call, _ time.Time) (bool, error) {
		return try(ctx, conn, key, s)
	})
}

func do[C Conn](ctx context.Context, open func(context.Context) (C, error), k advisory.Key, fn func(context.Context, C) error, opts []advisory.ConnOption, lock locking) (ran bool, err error) {
	s, err := read(ctx, k, opts)
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
		conn, err := openConn(ctx, open)
		if err != nil {
			return false, lockfn.Error("open a connection to lock", k, s.Mode, err)
		}
		db := sqlprivate.Pool(conn)
		if dead == 0 {
			most = extraDead
			if db != nil {
				most += db.Stats().Idle
			}
		}
		again := func(err error) bool { return errors.Is(err, errGone) && dead < most && ctx.Err() == nil }
		if !s.SessionPooler {
			check, err := needsCheck(ctx, conn)
			if check || err != nil {
				closeConn(conn, errors.Is(err, bound.ErrNoAnswer)) // the check may need its place in the pool
			}
			if err != nil && again(err) {
				continue
			}
			if err == nil && check {
				err = checkPool(ctx, db, open)
			}
			if err != nil {
				return false, lockfn.Error("lock", k, s.Mode, bound.Ended(ctx, err))
			}
			if check {
				s.SessionPooler = true // the check has succeeded
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

// doOn runs do on conn, and closes conn. If again accepts the error of lock, doOn returns errAgain.
// In that case fn has not run. If the connection broke while the try was under way, its session may
// hold the lock until the server notices: a repetition is then refused.
func doOn[C Conn](ctx context.Context, conn C, k advisory.Key, fn func(context.Context, C) error, s settings.Call, start time.Time, lock locking, again func(error) bool) (ran bool, err error) {
	var driver dbconn.Driver
	hung := false // a call got no answer: do not wait for conn
	released := false
	defer func() {
		if !closeConn(conn, hung) {
			driver.Close()
			if released { // else the release has an error of its own, and a dead link may be slow to close
				err = errors.Join(err, errLeftOpen)
			}
		}
	}()
	ran, err = lock(conn, s, start)
	if err != nil && again(err) {
		return false, errAgain
	}
	observeEnd(ctx, conn, k, s, start, ran, err)
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
		if uerr == nil {
			released = true
			uerr = leftLocked(ctx, conn, owner.Keys(), before)
		} else {
			hung = errors.Is(uerr, bound.ErrNoAnswer) && !errors.Is(uerr, statement.ErrBusy)
			uerr = unlockFailed(uerr, driver.Valid)
		}
		if uerr != nil {
			err = errors.Join(err, uerr)
		}
	}()
	return true, fn(ctx, conn)
}

// unlockFailed returns what the failed release of a Do means for the lock. alive reports whether the
// driver's connection still works.
func unlockFailed(err error, alive func() bool) error {
	switch {
	case errors.Is(err, errLeftOpen):
		return err
	case errors.Is(err, statement.ErrBusy):
		return fmt.Errorf("%w; the lock may have been lost before that: %w: %w", errLeftOpen, advisory.ErrLost, err)
	case errors.Is(err, bound.ErrNoAnswer):
		return fmt.Errorf("%w, or fn left a transaction or rows open on the connection: %w", advisory.ErrLost, err)
	case errors.Is(err, sql.ErrConnDone) && alive():
		return fmt.Errorf("%w: fn closed it, so it went back to its pool and still holds the lock: let Do close it", err)
	case errors.Is(err, sql.ErrConnDone): // not all drivers show which of the two happened
		return fmt.Errorf("%w, or fn closed the connection and it went back to its pool with the lock (let Do close it): %w", advisory.ErrLost, err)
	}
	return fmt.Errorf("%w: %w", advisory.ErrLost, err)
}

// errLeftOpen is a mistake of fn, but no loss: the lock was held until the server rolled back the
// open transaction.
var errLeftOpen = errors.New("fn left a transaction or rows open on the connection: the connection was closed, and uncommitted work was rolled back")

// leftLocked discards conn if it holds one of keys, since the pool would get conn with that lock. It
// returns an error unless the key was locked before fn, by an earlier user of the connection.
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

var errLeftLocked = errors.New("fn left another key locked on the connection: the connection was closed, and the key is free")

// closeConn closes conn and reports whether Close has returned. database/sql waits in Close for open
// rows and an open transaction. If hung is true, closeConn does not wait and returns true.
func closeConn(conn Conn, hung bool) bool {
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

// openConn calls open in bounded time, since a driver may block in a handshake.
func openConn[C Conn](ctx context.Context, open func(context.Context) (C, error)) (conn C, err error) {
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
