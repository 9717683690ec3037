package locker

import (
	"database/sql"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/statement"
)

// mayGoOnWaiting reports whether s may wait: it holds nothing, or nothing that somebody waits for.
func (s *session) mayGoOnWaiting(g *gate) bool {
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
	if !s.query(lockfn.Wanted, func(*sql.Rows) error { wanted++; return nil }) {
		wanted++ // for all that is known
	}
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if !s.alive() || s.wait.gate != g {
		return false
	}
	if wanted > 0 {
		s.wait.notBefore = time.Now().Add(barTime)
		s.leaveWait(g)
		return false
	}
	return true
}

// barTime is for how long a session does not wait that holds what somebody waits for: longer
// than others take to look for a deadlock.
const barTime = 2 * time.Second

// A sliceResult is what became of a slice.
type sliceResult struct {
	sent   time.Time
	rows   int64 // lockfn.SliceGranted, say
	token  uint64
	upTo   uint64 // the stamp as the token was drawn
	failed error  // of the statement: the link works
	err    error  // of the link
}

// slice waits on the server for g, for a slice, or less.
func (s *session) slice(g *gate) {
	if !s.mayGoOnWaiting(g) {
		return
	}
	length, ok := s.startSlice(g)
	if !ok {
		return
	}
	// Only this goroutine changes what the session waits for while the slice is under way.
	key, mode := g.key, s.wait.mode
	s.recordSlice(g, key, mode, s.sendSlice(key, mode, length))
}

// startSlice begins a slice, and returns how long it may take; false if s is not to wait.
func (s *session) startSlice(g *gate) (length time.Duration, ok bool) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	switch {
	case !s.alive() || s.wait.gate != g:
		return 0, false
	case s.wait.cut || !s.waitsAs(g):
		s.leaveWait(g)
		return 0, false
	}
	length = s.l.times.Slice
	if len(s.holds) > 0 {
		// So that there is an answer, and one more, within the deadline.
		length = min(length, s.l.times.Deadline/3)
	} else {
		s.watchFor(length)
	}
	if f := s.l.front; f == nil || f.phase == sessionOpening {
		length = min(length, lockfn.MaxSlice) // nobody guards it
	}
	s.beginSlice()
	return length, true
}

// sendSlice sends the slice, and with a grant draws a token. After an error of the statement it
// releases the lock, which a cancel at the end of the slice may have left behind.
func (s *session) sendSlice(key advisory.Key, mode advisory.Mode, length time.Duration) sliceResult {
	r := sliceResult{sent: time.Now()}
	r.rows, r.err = statement.Session{Ctx: s.ctx, On: s.conn}.Exec(lockfn.Waits(key, mode) + lockfn.Slice(key, mode, length))
	s.awaitCancels()
	if r.err == nil && r.rows == lockfn.SliceGranted && s.l.settings.Fencing {
		s.l.mu.Lock()
		r.upTo = s.l.stamp()
		s.l.mu.Unlock()
		r.token, r.err = s.drawToken()
	}
	if r.err != nil && lockfn.SQLState(r.err) != "" {
		r.rows = lockfn.SliceCanceled
		if !lockfn.Canceled(r.err) {
			r.failed = lockfn.Meaning(r.err)
		}
		for again := true; again; again = lockfn.Canceled(r.err) {
			_, r.err = s.conn.ExecContext(s.ctx, lockfn.UnlockIfHeld(key, mode))
		}
	}
	return r
}

// recordSlice records the result of a slice. A deadlock that the server found is no error:
// nobody waits for a session that only waits for the end of its slice. CREATE INDEX
// CONCURRENTLY by the holder of the lock brings that about.
func (s *session) recordSlice(g *gate, key advisory.Key, mode advisory.Mode, r sliceResult) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if !s.alive() {
		return
	}
	if r.err != nil {
		s.lose(r.err)
		return
	}
	if s.loseIfLate(r.sent) {
		return
	}
	s.recordAnswer(r.sent)
	s.watch.Reset(s.l.times.Deadline - time.Since(r.sent))
	s.beginNextSlice()
	switch {
	case r.rows == lockfn.SliceGranted:
		s.endWait()
		if g.hold != nil || g.busy() { // a reader's try won the key meanwhile
			s.releaseExtra(key, mode)
			g.advance()
			return
		}
		g.granted(s, mode, r.token, r.upTo)
	case r.failed != nil && g.queue.front() != nil:
		g.fail(g.queue.front(), r.failed)
		s.leaveWait(g)
	case s.wait.cut || !s.waitsAs(g):
		s.leaveWait(g)
	default:
		s.takeTurns(g)
	}
}

// takeTurns has s wait for the first of the polled keys, if there is one, and g polled instead.
// The mutex is held.
func (s *session) takeTurns(g *gate) {
	if len(s.l.polled) == 0 {
		return
	}
	next := s.l.polled[0]
	if next.phase != gatePolled || next.queue.front() == nil {
		return
	}
	s.endWait()
	s.l.nextPolled()
	g.beginPolling()
	s.beginWait(next)
}

// leaveWait ends the wait for g. The mutex is held.
func (s *session) leaveWait(g *gate) {
	s.endWait()
	s.idleSince = time.Now()
	g.advance()
}
