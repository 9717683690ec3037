package sqlconn

import (
	"context"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/dbconn"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/settings"
	"github.com/pgadvisory/pgadvisory/internal/wait"
)

// TryLock makes one try for key and reports whether conn holds it now. It is one
// round trip, and one more at the first call on a physical connection, which compares pids.
//
// Through a proxy, which may share its session with other clients, it returns an
// [*advisory.UnsafeServerError], and conn stays usable; see [SessionPooler]. A driver other than
// lib/pq and pgx may not show that there is a proxy.
//
// Errors: [advisory.ErrInvalidKey] for the zero Key, before anything is sent;
// [advisory.ErrAlreadyHeld] if conn holds the key by an earlier call of this
// package, or is about to by another call of it (the package cannot know of SQL sent by hand, nor where the driver hides
// its connection behind another each time, as pgx's stdlib.OpenDBFromPool does);
// [advisory.ErrUnsafeServer] on a hot standby, and nothing is tried;
// [advisory.ErrLockTableFull]; ctx's error if it ended before the answer; else the
// driver's. Of an error nothing is held.
func TryLock(ctx context.Context, conn Conn, key advisory.Key, opts ...advisory.ConnOption) (bool, error) {
	s, err := read(key, opts)
	if err != nil {
		return false, lockfn.Error("try lock", key, s.Mode, err)
	}
	start := time.Now()
	granted, err := try(ctx, conn, key, s)
	observe(ctx, conn, key, s, start, granted, err)
	return granted, err
}

// try is [TryLock] that leaves the event of its end to the caller.
func try(ctx context.Context, conn Conn, key advisory.Key, s settings.Call) (bool, error) {
	granted, err := on(ctx, ctx, conn, func(c *call) (granted bool, err error) {
		err = c.attempt(key, func() error {
			if err := c.refuseProxy(ctx, s); err != nil {
				return err
			}
			granted, err = c.tryLock(ctx, key, s.Mode)
			return err
		})
		return granted, err
	})
	if err != nil {
		granted = false
		err = lockfn.Error("try lock", key, s.Mode, bound.Ended(ctx, err))
	}
	return granted, err
}

func (c *call) tryLock(ctx context.Context, k advisory.Key, m advisory.Mode) (bool, error) {
	if err := c.alreadyHeld(k); err != nil {
		return false, err
	}
	rows, err := c.Exec(c.tryText(k, m))
	if err != nil {
		c.settle(k, m, err)
		return false, gone(err)
	}
	granted, err := granted(rows, nil)
	if err != nil {
		return false, err
	}
	if ctx.Err() != nil {
		if granted {
			c.undo(k, m)
		}
		return false, bound.Cause(ctx)
	}
	if granted {
		c.owner.Add(m, k)
	}
	return granted, nil
}

// tryText is the statement of a try. A primary never becomes a standby while a connection to it
// lasts, so a connection on which that was seen once does not ask again, which is quicker.
func (c *call) tryText(k advisory.Key, m advisory.Mode) string {
	if c.physical.Direct() {
		return lockfn.Try(k, m)
	}
	return lockfn.TryOnPrimary(k, m)
}

// granted reads the answer of [lockfn.Try], [lockfn.TryOnPrimary] and [lockfn.Block].
func granted(rows int64, err error) (bool, error) {
	if err == nil && rows == lockfn.SessionStandby {
		err = lockfn.ErrStandby
	}
	return err == nil && rows == lockfn.SessionGranted, err
}

// observe tells the Observer. If that panics nobody learns that the lock is held.
func observe(ctx context.Context, conn Conn, k advisory.Key, s settings.Call, start time.Time, granted bool, err error) {
	told := false
	defer func() {
		if granted && !told {
			dbconn.Discard(conn)
		}
	}()
	wait.Observe(ctx, k, s, start, granted, err)
	told = true
}
