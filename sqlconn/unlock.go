package sqlconn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/pooler"
	"github.com/pgadvisory/pgadvisory/internal/settings"
	"github.com/pgadvisory/pgadvisory/internal/sqlprivate"
)

// unlockTime limits a release, even if its ctx does not end.
const unlockTime = 5 * time.Second

// Unlock releases key, which must be held in the given mode. It takes one round trip.
//
// Unlock works after ctx has ended too. It takes at most five seconds. After the end of ctx it
// takes at most one second, and one more to discard conn.
//
// If conn does not hold the key in this mode, the error is [advisory.ErrNotHeld], and the server
// logs a warning. Any other error means that conn was discarded and its lock released. Exception: a
// conn that the caller had already closed ([sql.ErrConnDone]) went back to the pool with the lock.
func Unlock(ctx context.Context, conn Conn, key advisory.Key, opts ...advisory.ConnOption) error {
	s, err := read(ctx, key, opts)
	if err != nil {
		return lockfn.Error("unlock", key, s.Mode, err)
	}
	return unlock(ctx, conn, key, s, time.Time{}, false)
}

// unlock releases key. The event contains how long the lock was held if since is not zero. If alone
// is true and a transaction is open on conn, unlock discards conn instead, so that the server rolls
// back the transaction before it frees the lock.
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
				return fmt.Errorf("%w in this mode: this connection holds it %v, unlock it in that mode", advisory.ErrNotHeld, m)
			}
			c.owner.Remove(key)
			if known && alone { // a pooler may have changed the session: the next Do checks again
				pooler.Forget(sqlprivate.Pool(c.conn))
			}
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

// UnlockAll releases every session-level advisory lock of conn, including those that were taken with
// plain SQL. It returns nil if there is nothing to release. Time limits, errors and the fate of conn
// are those of [Unlock].
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

// release runs f, which releases locks, and discards conn if f fails.
func release(ctx context.Context, conn Conn, f func(*call) error) error {
	if err := mustHave(ctx, conn); err != nil {
		return err
	}
	late, stop := bound.Context(ctx)
	defer stop()
	late, cancel := context.WithTimeout(late, unlockTime)
	defer cancel()
	_, err := runCallUntil(late, conn, func(c *call) (none nothing, _ error) {
		err := f(c)
		if err != nil && !errors.Is(err, advisory.ErrNotHeld) {
			c.discard()
		}
		return none, err
	})
	return err
}
