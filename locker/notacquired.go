package locker

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// notAcquired is the error of a wait that ended. It asks who holds the key.
func (l *Locker) notAcquired(ctx context.Context, key advisory.Key, m advisory.Mode, start time.Time) error {
	e := &advisory.NotAcquiredError{Key: key, Mode: m, Waited: time.Since(start)}
	if ctx.Err() != nil {
		e.Cause = bound.Cause(ctx)
	}
	e.Cause = l.whyUnchecked(e.Cause)
	answer := make(chan []advisory.Holder, 1)
	var gone atomic.Bool // nobody waits for the answer any more
	l.mu.Lock()
	s, err := l.frontSession()
	if err == nil {
		var hs []advisory.Holder
		s.submit(&op{
			query: func(ctx context.Context, conn *sql.Conn) error {
				hs = nil
				if gone.Load() {
					return errNothingHeard
				}
				return bound.Session{Ctx: ctx, On: conn}.Query(lockfn.Holders, lockfn.HoldersArgs(key), func(rows *sql.Rows) error {
					h, err := lockfn.ScanHolder(rows)
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
	}
	l.mu.Unlock()
	if err == nil {
		select {
		case e.Holders = <-answer:
		case <-time.After(bound.Grace):
			gone.Store(true)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range e.Holders {
		for s := range l.sessions {
			if s.pid == e.Holders[i].PID {
				e.Holders[i].Local = true
				if h := s.holds[key]; h != nil {
					for u := range h.users {
						e.Holders[i].Label, e.Holders[i].Since = u.settings.Label, u.since
					}
				}
			}
		}
	}
	return e
}
