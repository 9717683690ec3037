package locker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/given"
)

// stopGranting gives no new locks from now on, and ends all waits.
func (l *Locker) stopGranting() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusal == nil {
		l.refusal = advisory.ErrClosed
	}
	for _, g := range l.gates {
		g.queue.answerAll(l.refusal)
		if g.waiter != nil {
			g.waiter.cutSlice()
		}
		g.advance()
	}
	l.wakeWatchers()
	if len(l.users) == 0 {
		l.closeDrained()
	}
}

// Shutdown gives no new locks and waits until those that are held are released, also those
// of which [HoldAtLeast] has put off the release, or until ctx ends. Then it closes the Locker.
// For a lock that is lost it does not wait, but for the function of Do, TryDo, Lead or a
// Semaphore that still runs under it. It returns an error if ctx ended first, and as Close does.
func (l *Locker) Shutdown(ctx context.Context) error {
	switch {
	case errors.Is(l.usable(), errNotMade):
		return fmt.Errorf("pgadvisory: shutdown: %w", errNotMade)
	case ctx == nil:
		return fmt.Errorf("pgadvisory: shutdown: %w", given.ErrNilCtx)
	}
	l.stopGranting()
	var err error
	select {
	case <-l.drained:
	case <-ctx.Done():
		select {
		case <-l.drained:
			return l.endSessions(ctx)
		default:
		}
		err = fmt.Errorf("pgadvisory: shutdown: locks were still held: %w", bound.Cause(ctx))
	}
	return errors.Join(err, l.endSessions(ctx))
}

// Close gives no new locks, waits for releases that [HoldAtLeast] has put off, and ends
// the Locker: the Contexts of its locks end with [advisory.ErrClosed], and its connections
// are destroyed, which frees the locks on the server. It takes two seconds at most beyond
// the releases that were put off.
//
// It returns an error if the server did not answer within that time and the connection held
// locks: the server frees them within the failover time. A connection that is lost already, or
// that holds nothing, is no reason for an error. The connection of locks that were lost because the
// server was silent stays until each was unlocked, or its work has returned, at most for the failover
// time: to close it earlier would hand over the locks under running work.
func (l *Locker) Close() error {
	if errors.Is(l.usable(), errNotMade) {
		return fmt.Errorf("pgadvisory: close: %w", errNotMade)
	}
	l.stopGranting()
	return l.endSessions(context.Background())
}

// endSessions closes the Locker, after the releases that were put off, or when ctx ends.
func (l *Locker) endSessions(ctx context.Context) error {
	l.mu.Lock()
	l.noDelay = true
	l.mu.Unlock()
	due := make(chan struct{})
	go func() { l.deferred.Wait(); close(due) }()
	select {
	case <-due:
	case <-ctx.Done():
	}
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.ending)
	}
	var live []*session
	var holding []bool
	for s := range l.sessions {
		s.closing = true
		live, holding = append(live, s), append(holding, len(s.holds) > 0)
		for _, h := range s.holds {
			h.lost(advisory.ErrClosed)
		}
		clear(s.holds)
		if s.inSlice() || s.phase == sessionOpening {
			s.cancel()
		}
		s.nudge()
	}
	for s := range l.lost {
		if s.orphans == 0 { // else it is kept for the work under its locks
			live, holding = append(live, s), append(holding, false)
		}
	}
	l.mu.Unlock()
	return l.awaitEnd(live, holding)
}

// awaitEnd waits until the sessions have closed their connections, and checks of the server are
// over. It gives up the sessions that take too long, and returns an error if one of these held
// locks.
func (l *Locker) awaitEnd(live []*session, holding []bool) error {
	gone := make(chan struct{})
	go func() {
		l.checks.Wait()
		for _, s := range live {
			<-s.gone
		}
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-time.After(bound.Grace + bound.Abort):
	}
	var err error
	for i, s := range live {
		select {
		case <-s.gone:
			continue
		default:
		}
		s.cancel()
		if holding[i] {
			err = fmt.Errorf("pgadvisory: close: locks may be held on the server for the failover time: %w", bound.ErrNoAnswer)
		}
	}
	return err
}
