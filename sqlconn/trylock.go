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

// TryLock makes one try for key and reports whether conn holds it now. It takes one round trip. The
// first call on a physical connection takes one more, to compare pids.
//
// Through a proxy, which may share its session with other clients, it returns an
// [*advisory.UnsafeServerError], and conn stays usable; see [SessionPooler]. So it does on a server
// whose version() names another database than PostgreSQL, because its functions may lock nothing. In
// both cases it locks if [Do], [TryDo] or a Locker has checked the pool there. With a driver other
// than lib/pq and pgx, TryLock detects neither.
//
// After an error conn holds nothing that it did not hold before. The errors are:
//
//   - [advisory.ErrInvalidKey] for the zero Key, before anything is sent
//   - [advisory.ErrAlreadyHeld] if an earlier call of this package took the key on conn, or another
//     call is taking it
//   - [advisory.ErrUnsafeServer] on a hot standby, without a try
//   - [advisory.ErrLockTableFull]
//   - ctx's error, if ctx ended before the answer
//   - the driver's error otherwise
//
// The package does not know locks that were taken with plain SQL. It does not recognize a connection
// again if the driver wraps it anew for each use, as pgx's stdlib.OpenDBFromPool does.
func TryLock(ctx context.Context, conn Conn, key advisory.Key, opts ...advisory.ConnOption) (bool, error) {
	s, err := read(ctx, key, opts)
	if err != nil {
		return false, lockfn.Error("try lock", key, s.Mode, err)
	}
	start := time.Now()
	granted, err := try(ctx, conn, key, s)
	observeEnd(ctx, conn, key, s, start, granted, err)
	return granted, err
}

// try is [TryLock] without the event of its end, which the caller reports.
func try(ctx context.Context, conn Conn, key advisory.Key, s settings.Call) (bool, error) {
	type answer struct {
		granted bool
		holders []advisory.Holder
	}
	a, err := runCall(ctx, ctx, conn, func(c *call) (a answer, err error) {
		err = c.attempt(key, func() error {
			if err := c.refuseUnchecked(ctx, s); err != nil {
				return err
			}
			a.granted, err = c.tryLock(ctx, key, s.Mode)
			if err == nil && !a.granted && s.HoldersTo != nil {
				a.holders, err = wait.Holders(c.Session, key)
			}
			return err
		})
		return a, err
	})
	if err != nil {
		a = answer{}
		err = lockfn.Error("try lock", key, s.Mode, bound.Ended(ctx, err))
	}
	s.SetHolders(a.holders)
	return a.granted, err
}

func (c *call) tryLock(ctx context.Context, k advisory.Key, m advisory.Mode) (bool, error) {
	if err := c.alreadyHeld(k); err != nil {
		return false, err
	}
	rows, err := c.Exec(c.tryText(k, m))
	if err != nil {
		c.releaseAfterFailure(k, m, err)
		return false, markGone(err)
	}
	granted, err := granted(rows, nil)
	if err != nil {
		return false, err
	}
	if ctx.Err() != nil {
		if granted {
			c.releaseLate(k, m)
		}
		return false, bound.Cause(ctx)
	}
	if granted {
		c.owner.Add(m, k)
	}
	return granted, nil
}

// tryText returns the statement of a try. A primary does not become a standby while a connection to
// it lasts. So a connection that was once seen to be on a primary does not check that again, which
// is quicker.
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

// observeEnd reports the end of a call to the Observer. If the Observer panics, the caller does not
// learn that conn holds the lock, so conn is discarded.
func observeEnd(ctx context.Context, conn Conn, k advisory.Key, s settings.Call, start time.Time, granted bool, err error) {
	returned := false
	defer func() {
		if granted && !returned {
			dbconn.Discard(conn)
		}
	}()
	wait.Observe(ctx, k, s, start, granted, err)
	returned = true
}
