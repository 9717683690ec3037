package locker

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/statement"
)

// pollEvery is how often the keys are tried for which there is no session to wait.
const pollEvery = 25 * time.Millisecond

// waitFor has a session wait on the server for g, or has g polled. The mutex is held.
func (l *Locker) waitFor(g *gate) {
	if s := l.spareSession(); s != nil {
		s.await(g)
		return
	}
	l.pollFor(g)
	if !l.polling {
		l.polling = true
		time.AfterFunc(pollEvery, l.poll)
	}
}

// pollFor puts g at the end of those that are polled. It may be among them still, from an
// earlier wait. The mutex is held.
func (l *Locker) pollFor(g *gate) {
	g.polled = true
	if !g.listed {
		g.listed = true
		l.polled = append(l.polled, g)
	}
}

// nextPolled takes the first of those that are polled. The mutex is held.
func (l *Locker) nextPolled() *gate {
	g := l.polled[0]
	l.polled = l.polled[1:]
	g.polled, g.listed = false, false
	return g
}

// spareSession returns a session that waits for nothing, and is not the front session: one
// that holds nothing, else a new one, else that which holds the fewest locks; nil if none may wait.
func (l *Locker) spareSession() *session {
	if l.polls || l.closed || l.front == nil && l.noMore.After(time.Now()) {
		return nil
	}
	l.frontSession() // which guards those that wait
	for s := range l.sessions {
		if s.mayWait() && len(s.holds) == 0 {
			return s
		}
	}
	if l.roomForSession() {
		return l.newSession()
	}
	var least *session
	for s := range l.sessions {
		if s.mayWait() && s.open && time.Now().After(s.barred) && (least == nil || len(s.holds) < len(least.holds)) {
			least = s
		}
	}
	return least
}

// mayWait reports whether s has nothing to do and does not guard others. The mutex is held.
func (s *session) mayWait() bool {
	return s != s.l.front && s.dead == nil && !s.stop && s.waitFor == nil && len(s.queue) == 0 && len(s.inFlight) == 0
}

// roomForSession reports whether another session may be opened to wait. The mutex is held.
func (l *Locker) roomForSession() bool {
	if len(l.sessions) >= l.settings.MaxConns || l.noMore.After(time.Now()) {
		return false
	}
	if st := l.db.Stats(); st.MaxOpenConnections > 0 {
		taken := st.InUse
		for s := range l.sessions {
			if !s.open {
				taken++ // soon
			}
		}
		if taken >= st.MaxOpenConnections-1 {
			return false // better to poll than to take the last connection, which work under a lock may need
		}
	}
	return true
}

// await has s wait for g. The mutex is held.
func (s *session) await(g *gate) {
	g.waiter, s.waitFor, s.waitMode, s.hurried = s, g, g.queue.front().settings.Mode, false
	s.nudge()
}

// waitsAs reports whether s waits as the front of g's queue would.
func (s *session) waitsAs(g *gate) bool {
	front := g.queue.front()
	return front != nil && !front.once && front.settings.Mode == s.waitMode
}

// pollAtOnce is how many keys are polled at one time, so that neither a batch nor the time under
// the mutex grows with them: where more are waited for they take turns.
const pollAtOnce = 1024

// poll tries the polled keys in one batch.
func (l *Locker) poll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	turn := l.polled[:min(len(l.polled), pollAtOnce)]
	l.polled = l.polled[len(turn):]
	waits := true // there may be a session to wait
	for _, g := range turn {
		if !g.polled {
			g.listed = false
			continue
		}
		if g.queue.front() == nil || l.state != nil {
			g.polled, g.listed = false, false
			g.advance()
			continue
		}
		if waits && !g.busy {
			if s := l.spareSession(); s != nil {
				g.polled, g.listed = false, false
				s.await(g)
				continue
			}
			waits = false
		}
		l.polled = append(l.polled, g)
		if !g.busy && !g.asking {
			g.try(g.queue.front())
		}
	}
	l.polling = len(l.polled) > 0
	if l.polling {
		time.AfterFunc(pollEvery, l.poll)
	}
}

// slicing lists the sessions that wait on the server and are to be guarded, and those that
// are to wait no more; none at which a cancel aims already. The mutex is held.
func (l *Locker) slicing() (waiters, leaving []*session) {
	for s := range l.sessions {
		switch {
		case !s.aimable():
		case s.hurried:
			leaving = append(leaving, s)
		default:
			waiters = append(waiters, s)
		}
	}
	return waiters, leaving
}

// hurry ends the session's slice: its callers are gone, or want another mode. The mutex
// is held.
func (s *session) hurry() {
	if s.hurried || s.dead != nil {
		return
	}
	s.hurried = true
	slice := s.slices
	front := s.l.front
	if front == nil {
		return
	}
	// If it does not wait yet when that comes, it is done again.
	var missed atomic.Bool
	front.submit(&op{
		query: func(ctx context.Context, conn *sql.Conn) error {
			aim := s.l.aimAtSlice(s)
			if aim == nil {
				return errNothingHeard
			}
			defer aim.over()
			result, err := conn.ExecContext(ctx, lockfn.Guard(nil, []int{s.pid}))
			if err == nil {
				n, _ := result.RowsAffected()
				missed.Store(n == 0)
			}
			return err
		},
		done: func(bool, uint64, error) {
			if missed.Load() && len(s.queue) > 0 {
				time.AfterFunc(hurryAgain, func() { s.hurryOn(slice) })
			}
		},
	})
}

// hurryAgain is when a cancel that came too early is sent again.
const hurryAgain = 5 * time.Millisecond

// hurryOn cancels the session's slice once more, if it is that one still.
func (s *session) hurryOn(slice int) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if s.hurried && s.slices == slice && s.target {
		s.spared = time.Time{} // nothing was cancelled
		s.hurried = false
		s.hurry()
	}
}

// free reports whether s may wait: it holds nothing, or nothing that somebody waits for.
func (s *session) free(g *gate) bool {
	s.l.mu.Lock()
	holds := len(s.holds) > 0
	s.l.mu.Unlock()
	if !holds {
		return true
	}
	if time.Since(s.pinged) >= s.l.times.Heartbeat {
		s.ping()
	}
	wanted := 0
	if !s.ask(lockfn.Wanted, func(*sql.Rows) error { wanted++; return nil }) {
		wanted++ // for all that is known
	}
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if s.dead != nil || s.waitFor != g {
		return false
	}
	if wanted > 0 {
		s.barred = time.Now().Add(barTime)
		s.slept(g)
		return false
	}
	return true
}

// barTime is for how long a session does not wait that holds what somebody waits for: longer
// than others take to look for a deadlock.
const barTime = 2 * time.Second

// slice waits on the server for g, for a slice, or less.
func (s *session) slice(g *gate) {
	if !s.free(g) {
		return
	}
	s.l.mu.Lock()
	if s.dead != nil || s.waitFor != g {
		s.l.mu.Unlock()
		return
	}
	if s.hurried || !s.waitsAs(g) {
		s.slept(g)
		s.l.mu.Unlock()
		return
	}
	key, mode, length := g.key, s.waitMode, s.l.times.Slice
	if len(s.holds) > 0 {
		// So that there is an answer, and one more, within the deadline.
		length = min(length, s.l.times.Deadline/3)
	} else {
		s.watchFor(length)
	}
	if f := s.l.front; f == nil || !f.open {
		length = min(length, lockfn.MaxSlice) // nobody guards it
	}
	s.slicing, s.target, s.spared = true, true, time.Time{}
	s.slices++
	s.l.mu.Unlock()

	sent := time.Now()
	rows, err := statement.Session{Ctx: s.ctx, On: s.conn}.Exec(lockfn.Waits(key, mode) + lockfn.Slice(key, mode, length))
	var token uint64
	s.ward()
	var upTo uint64 // as the token is drawn
	if err == nil && rows == lockfn.SliceGranted && s.l.settings.Fencing {
		s.l.mu.Lock()
		upTo = s.l.stamp()
		s.l.mu.Unlock()
		token, err = s.drawToken()
	}
	var failed error
	if err != nil && lockfn.SQLState(err) != "" {
		// A cancel that hit the end of the slice may have left the lock behind.
		rows = lockfn.SliceCanceled
		if !lockfn.Canceled(err) {
			failed = lockfn.Meaning(err)
		}
		for again := true; again; again = lockfn.Canceled(err) {
			_, err = s.conn.ExecContext(s.ctx, lockfn.UnlockIfHeld(key, mode))
		}
	}

	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	s.slicing = false
	if s.dead != nil {
		return
	}
	if err != nil {
		s.lose(err)
		return
	}
	if s.late(sent) {
		return
	}
	s.heard(sent)
	s.watch.Reset(s.l.times.Deadline - time.Since(sent))
	// A deadlock that the server found is none: nobody waits for a session that waits but
	// for the end of its slice, CREATE INDEX CONCURRENTLY by the holder of the lock, say.
	switch {
	case rows == lockfn.SliceGranted:
		s.waitFor, g.waiter = nil, nil
		s.l.wakeWatchers()
		if g.hold != nil || g.busy { // which a reader's try won meanwhile
			s.undo(key, mode)
			g.advance()
			return
		}
		g.granted(s, mode, token, upTo)
	case failed != nil && g.queue.front() != nil:
		g.fail(g.queue.front(), failed)
		s.slept(g)
	case s.hurried || !s.waitsAs(g):
		s.slept(g)
	case len(s.l.polled) > 0:
		// Another's turn.
		next := s.l.polled[0]
		if next.busy || !next.polled || next.queue.front() == nil {
			return
		}
		s.waitFor, g.waiter = nil, nil
		s.l.wakeWatchers()
		s.l.nextPolled()
		s.l.pollFor(g)
		s.await(next)
	}
}

// slept ends the wait for g. The mutex is held.
func (s *session) slept(g *gate) {
	s.waitFor, g.waiter, s.idle = nil, nil, time.Now()
	s.l.wakeWatchers()
	g.advance()
}

// spare takes note that s may have nothing to do any more. The mutex is held.
func (s *session) spare() {
	if len(s.holds) == 0 {
		s.idle = time.Now()
	}
}
