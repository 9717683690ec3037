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

// Lock waits until conn holds key. It is one round trip if the key is free, and one
// more at the first call on a physical connection. Through a proxy it fails as [TryLock] does.
//
// It waits on the server, in slices of at most 400 ms and shorter than
// deadlock_timeout. So the lock is handed over at once, and yet a waiter holds up
// neither CREATE INDEX CONCURRENTLY nor VACUUM for longer than a slice, and
// nothing is logged; but a waiter goes to the end of the server's queue with
// each slice. See [PlainWait] for the other choice. Inside a transaction that is
// open on conn, and where plpgsql may not be used, it makes a row of tries, with
// pauses of up to 75 ms, instead. The end of ctx is noticed after a slice, or in a
// pause.
//
// If ctx or [advisory.MaxWait] ends first the error is an
// [*advisory.NotAcquiredError] that names the holders, and conn holds nothing and is
// as it was, or was given up, if the server did not answer. Waits of this package
// and of xact that wait for each other are told [advisory.ErrDeadlock], one of them,
// within three seconds, given that they use one role and track_activities is on.
// Otherwise errors are those of [TryLock], and an error if pg_cancel_backend was
// called on the wait.
func Lock(ctx context.Context, conn Conn, key advisory.Key, opts ...advisory.ConnOption) error {
	s, err := read(key, opts)
	if err != nil {
		return lockfn.Error("lock", key, s.Mode, err)
	}
	start := time.Now()
	err = lock(ctx, conn, key, s, start)
	observe(ctx, conn, key, s, start, err == nil, err)
	return err
}

// lock is [Lock] that leaves the event of its end to the caller.
func lock(ctx context.Context, conn Conn, key advisory.Key, s settings.Call, start time.Time) error {
	limit, cancel := wait.Limit(ctx, s)
	defer cancel()
	stop := func() {}
	if s.PlainWait {
		stop = wait.Long(ctx, s.Observer, key, s, start)
	}
	_, err := on(ctx, limit, conn, func(c *call) (none nothing, _ error) {
		return none, c.attempt(key, func() error {
			if err := c.refuseProxy(ctx, s); err != nil {
				return err
			}
			if s.PlainWait && !wait.OneTry(s) {
				return c.plainWait(limit, key, s.Mode)
			}
			return c.lock(&wait.Wait{Session: c.Session, Caller: ctx, Limit: limit, Settings: s, Key: key, Start: start})
		})
	})
	stop()
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
	round, err := c.round(w)
	if err != nil {
		return err
	}
	if err := w.Until(round); err != nil {
		if !wait.GaveWay(err) {
			c.settle(k, m, err)
		}
		return err
	}
	if w.Caller.Err() != nil {
		c.undo(k, m)
		return w.NotAcquired()
	}
	c.owner.Add(m, k)
	return nil
}

// round returns how to wait here: in slices, or by polling.
func (c *call) round(w *wait.Wait) (func() (bool, error), error) {
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

// PlainWait has [Lock] wait by one plain pg_advisory_lock, which keeps its place in
// the server's queue for as long as it takes, and leaves deadlocks to the server.
// Such a waiter stalls CREATE INDEX CONCURRENTLY, or is killed by it, and
// keeps VACUUM from removing dead rows. If ctx or [advisory.MaxWait] ends the
// wait, conn is discarded.
func PlainWait() advisory.ConnOption { return plainWait{} }

type plainWait struct{}

func (plainWait) ApplyConn(c *option.Call) { c.PlainWait = true }

func (c *call) plainWait(limit context.Context, k advisory.Key, m advisory.Mode) error {
	if err := c.alreadyHeld(k); err != nil {
		return err
	}
	// Here the end of limit does reach the driver, and ends the connection.
	s := c.Session
	s.Ctx = limit
	rows, err := s.Exec(lockfn.Block(k, m))
	if limit.Err() != nil {
		c.discard()
		return bound.Cause(limit)
	}
	if err != nil {
		c.settle(k, m, err)
		return gone(err)
	}
	if _, err := granted(rows, nil); err != nil {
		return err
	}
	c.owner.Add(m, k)
	return nil
}
