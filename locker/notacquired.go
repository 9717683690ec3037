package locker

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/settings"
	"github.com/pgadvisory/pgadvisory/internal/statement"
)

// notAcquired is the error of a wait that ended. It asks who holds the key.
func (l *Locker) notAcquired(ctx context.Context, key advisory.Key, m advisory.Mode, start time.Time) *advisory.NotAcquiredError {
	e := &advisory.NotAcquiredError{Key: key, Mode: m, Waited: time.Since(start)}
	if ctx.Err() != nil {
		e.Cause = bound.Cause(ctx)
	}
	e.Cause = l.whyNoSession(l.whyUnchecked(e.Cause))
	e.Holders = l.whoHolds(context.Background(), key)
	return e
}

// noneAcquired is notAcquired for a wait for any key of c. It asks who holds one of them.
func (l *Locker) noneAcquired(ctx context.Context, c choice, m advisory.Mode, start time.Time) error {
	e := l.notAcquired(ctx, c.at(0), m, start)
	e.Key = c.name
	return e
}

// setHolders sets what HoldersTo points to, at the end of a try.
func (l *Locker) setHolders(ctx context.Context, s settings.Call, key advisory.Key, granted bool, err error) {
	if s.HoldersTo != nil && !granted && err == nil {
		s.SetHolders(l.whoHolds(ctx, key))
	}
}

// whoHolds returns who holds key, with what this process knows of them. It returns nil if no answer
// comes in time, or before ctx ends.
func (l *Locker) whoHolds(ctx context.Context, key advisory.Key) []advisory.Holder {
	hs := l.holders(ctx, key)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range hs {
		l.describe(&hs[i], key)
	}
	return hs
}

// describe adds what this process knows of a holder of key. The mutex is held.
func (l *Locker) describe(holder *advisory.Holder, key advisory.Key) {
	for s := range l.sessions {
		if !s.opened() || s.pid != holder.PID {
			continue
		}
		holder.Local = true
		if h := s.holds[key]; h != nil {
			for u := range h.users {
				holder.Label, holder.Since = u.settings.Label, u.since
			}
		}
	}
}

// holders asks the server who holds key. It returns nil if no answer comes in time, or before ctx ends.
func (l *Locker) holders(ctx context.Context, key advisory.Key) (found []advisory.Holder) {
	answer := make(chan []advisory.Holder, 1)
	var gone atomic.Bool // nobody waits for the answer any more
	if !l.submitHolders(key, answer, &gone) {
		return nil
	}
	select {
	case found = <-answer:
	case <-ctx.Done():
		gone.Store(true)
	case <-time.After(bound.Grace):
		gone.Store(true)
	}
	return found
}

// submitHolders has the front session ask who holds key; false if the Locker is closed, or cut off.
func (l *Locker) submitHolders(key advisory.Key, answer chan<- []advisory.Holder, gone *atomic.Bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cutOff() {
		return false
	}
	s, err := l.frontSession()
	if err != nil {
		return false
	}
	var hs []advisory.Holder
	s.submit(&op{
		query: func(ctx context.Context, conn *sql.Conn) error {
			hs = nil
			if gone.Load() {
				return errNothingHeard
			}
			return statement.Session{Ctx: ctx, On: conn}.Query(lockfn.Holders, lockfn.HoldersArgs(key), func(rows *sql.Rows) error {
				h, err := lockfn.ScanHolder(rows, key)
				hs = append(hs, h)
				return err
			})
		},
		done: func(_ bool, _ uint64, err error) {
			if err != nil {
				answer <- nil // and the query may still be under way
			} else {
				answer <- hs
			}
		},
	})
	return true
}
