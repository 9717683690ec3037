package sqlconn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/given"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/settings"
)

// unlockTime bounds a release whatever its ctx.
const unlockTime = 5 * time.Second

// Unlock releases key, of the mode in which it was taken. It is one round trip.
//
// It works also when ctx has ended: it takes at most five seconds, and no more than
// one once ctx has ended, and one more to give conn up. If conn does not hold the
// key in this mode the error is [advisory.ErrNotHeld]; the server also writes a
// warning. With any other error of the release conn has been discarded, and the lock with
// it; but if conn was closed before (sql.ErrConnDone), by its Close, it went back to its pool
// with the lock.
func Unlock(ctx context.Context, conn Conn, key advisory.Key, opts ...advisory.ConnOption) error {
	s, err := read(key, opts)
	if err != nil {
		return lockfn.Error("unlock", key, s.Mode, err)
	}
	return unlock(ctx, conn, key, s, time.Time{}, false)
}

// unlock tells the Observer how long the lock was held, if since says it. alone: if a
// transaction is open on conn it releases nothing, but discards conn, so that what is not
// committed is rolled back first.
func unlock(ctx context.Context, conn Conn, key advisory.Key, s settings.Call, since time.Time, alone bool) error {
	text := lockfn.Unlock(key, s.Mode)
	if alone {
		text = lockfn.UnlockAlone(key, s.Mode)
	}
	err := release(ctx, conn, func(c *call) error {
		rows, err := c.Exec(text)
		if rows == lockfn.AloneInTransaction || alone && lockfn.SQLState(err) == lockfn.InFailedTransaction {
			return errLeftOpen
		}
		if err != nil {
			return err
		}
		m, known := c.owner.Mode(key)
		if rows == 0 {
			if known && m != s.Mode {
				return fmt.Errorf("%w in this mode: it is held %v", advisory.ErrNotHeld, m)
			}
			c.owner.Remove(key)
			return fmt.Errorf("%w by this connection", advisory.ErrNotHeld)
		}
		if m == s.Mode {
			c.owner.Remove(key)
		}
		return nil
	})
	err = lockfn.Error("unlock", key, s.Mode, err)
	if s.Observer != nil {
		e := advisory.Event{Kind: advisory.Released, Key: key, Mode: s.Mode, Label: s.Label, Err: err}
		if err != nil && !errors.Is(err, errLeftOpen) {
			e.Kind = advisory.Lost
		}
		if !since.IsZero() {
			e.Held = time.Since(since)
		}
		s.Observer.Observe(ctx, e)
	}
	return err
}

// UnlockAll releases every session-level advisory lock of conn, also those that were
// taken by hand. Time and errors are those of [Unlock]; that there is nothing to
// release is no error.
func UnlockAll(ctx context.Context, conn Conn) error {
	err := release(ctx, conn, func(c *call) error {
		if _, err := c.Exec(lockfn.UnlockAll); err != nil {
			return err
		}
		c.owner.Clear()
		return nil
	})
	if err != nil {
		return fmt.Errorf("pgadvisory: unlock all: %w", lockfn.Meaning(err))
	}
	return nil
}

// release runs f, a release, and discards conn if it fails.
func release(ctx context.Context, conn Conn, f func(*call) error) error {
	if given.IsNil(conn) {
		return errors.New("conn is nil")
	}
	late, stop := bound.Context(ctx)
	defer stop()
	late, cancel := context.WithTimeout(late, unlockTime)
	defer cancel()
	_, err := in(late, conn, func(c *call) (none nothing, _ error) {
		err := f(c)
		if err != nil && !errors.Is(err, advisory.ErrNotHeld) {
			c.discard()
		}
		return none, err
	})
	return err
}
