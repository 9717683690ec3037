package sqlconn

import (
	"context"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/option"
	"github.com/pgadvisory/pgadvisory/internal/settings"
	"github.com/pgadvisory/pgadvisory/internal/wait"
)

// Lock waits until conn holds key. It takes one round trip if the key is free, and one more at the
// first call on a physical connection. Through a proxy it fails as [TryLock] does.
//
// Lock waits on the server, in slices of at most 400 ms that are shorter than deadlock_timeout:
//
//   - The server hands the lock over at once.
//   - A waiter delays CREATE INDEX CONCURRENTLY and VACUUM by one slice at most.
//   - The server logs nothing.
//   - Each slice puts the waiter at the end of the server's queue. [PlainWait] keeps its place.
//   - Lock detects the end of ctx after a slice.
//
// Inside a transaction that is open on conn, and where the role may not use plpgsql, Lock polls
// instead, with pauses of up to 75 ms. Then it detects the end of ctx during a pause.
//
// If ctx or [advisory.MaxWait] ends first, Lock returns an [*advisory.NotAcquiredError] that names
// the holders. conn holds nothing and is unchanged, unless the server did not answer; then conn is
// discarded.
//
// If waits of this package and of xact wait for each other, one of them fails with
// [advisory.ErrDeadlock] within three seconds. This requires that they use one role and that
// track_activities is on.
//
// Other errors are those of TryLock, and an error if pg_cancel_backend was called on the wait.
func Lock(ctx context.Context, conn Conn, key advisory.Key, opts ...advisory.ConnOption) error {
	s, err := read(ctx, key, opts)
	if err != nil {
		return lockfn.Error("lock", key, s.Mode, err)
	}
	start := time.Now()
	err = lock(ctx, conn, key, s, start)
	observeEnd(ctx, conn, key, s, start, err == nil, err)
	return err
}

// lock is [Lock] without the event of its end, which the caller reports.
func lock(ctx context.Context, conn Conn, key advisory.Key, s settings.Call, start time.Time) error {
	limit, cancel := wait.Limit(ctx, s)
	defer cancel()
	if s.PlainWait {
		defer wait.Long(ctx, s.Observer, key, s, start, nil)() // the connection is busy
	}
	_, err := runCall(ctx, limit, conn, func(c *call) (none nothing, _ error) {
		return none, c.attempt(key, func() error {
			if err := c.refuseUnchecked(ctx, s); err != nil {
				return err
			}
			if s.PlainWait && !wait.OneTry(s) {
				return c.plainWait(limit, key, s.Mode)
			}
			return c.lock(&wait.Wait{Session: c.Session, Caller: ctx, Limit: limit, Settings: s, Key: key, Start: start})
		})
	})
	return lockfn.Error("lock", key, s.Mode, wait.Ended(ctx, limit, key, s.Mode, start, err))
}

func (c *call) lock(w *wait.Wait) error {
	k, m := w.Key, w.Settings.Mode
	granted, err := c.tryLock(w.Caller, k, m)
	if granted || err != nil {
		return err
	}
	if wait.OneTry(w.Settings) {
		return w.NotAcquired()
	}
	round, err := c.waitRound(w)
	if err != nil {
		return err
	}
	if err := w.Until(round); err != nil {
		if !wait.HoldsNothing(err) {
			c.releaseAfterFailure(k, m, err)
		}
		return err
	}
	if w.Caller.Err() != nil {
		c.releaseLate(k, m)
		return w.NotAcquired()
	}
	c.owner.Add(m, k)
	return nil
}

// waitRound returns one round of the wait: a slice on the server, or a pause and a try.
func (c *call) waitRound(w *wait.Wait) (func() (bool, error), error) {
	rows, err := w.Exec(lockfn.SliceLimit(false))
	if err != nil {
		return nil, err
	}
	if length := lockfn.SliceLength(rows); length > 0 {
		return func() (bool, error) { return w.Slice(length) }, nil
	}
	return func() (bool, error) {
		w.Pause()
		return granted(w.Exec(c.tryText(w.Key, w.Settings.Mode)))
	}, nil
}

// PlainWait makes [Lock] wait with one plain pg_advisory_lock. The waiter keeps its place in the
// server's queue for the whole wait, and the server detects deadlocks. Such a waiter blocks CREATE
// INDEX CONCURRENTLY or fails with a deadlock because of it, and keeps VACUUM from removing dead
// rows. If ctx or [advisory.MaxWait] ends the wait, conn is discarded.
func PlainWait() advisory.ConnOption { return plainWait{} }

type plainWait struct{}

func (plainWait) ApplyConn(c *option.Call) { c.PlainWait = true }

func (c *call) plainWait(limit context.Context, k advisory.Key, m advisory.Mode) error {
	if err := c.alreadyHeld(k); err != nil {
		return err
	}
	// Here limit reaches the driver, and its end closes the connection.
	s := c.Session
	s.Ctx = limit
	rows, err := s.Exec(lockfn.Block(k, m))
	if limit.Err() != nil {
		c.discard()
		return bound.Cause(limit)
	}
	if err != nil {
		c.releaseAfterFailure(k, m, err)
		return markGone(err)
	}
	if _, err := granted(rows, nil); err != nil {
		return err
	}
	c.owner.Add(m, k)
	return nil
}
