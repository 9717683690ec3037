package locker

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pooler"
)

var errSessionGone = errors.New("the session is gone")

var errLockGone = errors.New("a lock is gone from its session")

// errOverdue: the server was not heard of for too long. It may still hold the locks, for
// some time.
var errOverdue = errors.New("the server has not answered in time")

// watchFor bounds the answer of a slice. The mutex is held.
func (s *session) watchFor(slice time.Duration) {
	s.watch.Reset(s.l.times.Deadline + slice)
}

// overdue is called when the deadline may have passed. It runs on a goroutine of its
// own, for the owner may be in a call that does not return.
func (s *session) overdue() {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if !s.alive() {
		return
	}
	limit := s.l.times.Deadline
	if s.inSlice() && len(s.holds) == 0 {
		limit += s.l.times.Slice
	}
	if left := limit - time.Since(s.answered); left > 0 {
		s.watch.Reset(left)
		return
	}
	s.lose(errOverdue)
}

// loseIfLate ends the session if an answer to what was sent at that time came so late that the
// server may have let go meanwhile: this process was stopped, say, and its timers come after
// the answer. The mutex is held.
func (s *session) loseIfLate(sent time.Time) bool {
	if s.loseIfUnproven() {
		return true
	}
	if sent.IsZero() || time.Since(sent) < s.l.times.Deadline {
		return false
	}
	s.lose(errOverdue)
	return true
}

// lose ends the session: its locks are lost, all together, and what it was to do
// fails. The mutex is held.
func (s *session) lose(cause error) {
	if !s.alive() {
		return
	}
	var err error = &lossError{cause}
	if !s.opened() {
		err = cause
		s.l.openingFailed(cause)
	}
	s.end(sessionLost, err)
	if excludesNobody(cause) {
		s.l.loseAll(cause) // before anybody learns of it
	}
	var gates []*gate
	for _, h := range s.holds {
		s.orphans += len(h.users)
		h.lost(s.err)
		gates = append(gates, h.gate)
		s.l.observeLoss(h, s.err)
	}
	if g := s.wait.gate; g != nil {
		s.endWait()
		gates = append(gates, g)
	}
	ops := append(s.inFlight, s.queue...)
	s.inFlight, s.queue = nil, nil
	for _, o := range ops {
		o.answer(false, 0, s.err)
	}
	for _, g := range gates {
		g.advance()
	}
	if !errors.Is(cause, errOverdue) && !stalePrimary(cause) && !excludesNobody(cause) {
		s.orphans = 0 // the server has let go already
	}
	if s.orphans > 0 {
		// To close the connection now would hand the locks over now.
		time.AfterFunc(s.l.times.Failover, s.cancel)
	} else {
		s.cancel()
	}
	s.nudge()
	s.l.keepGuard()
	if s.opened() {
		pid := s.pid
		go s.l.observe(advisory.Event{Kind: advisory.SessionClosed, PID: pid, Err: cause})
	}
}

// excludesNobody reports whether cause says that locks do not exclude, on whatever connection of the
// pool.
func excludesNobody(cause error) bool {
	unsafe, ok := errors.AsType[*advisory.UnsafeServerError](cause)
	return ok && (unsafe.Reason == advisory.Pooler || unsafe.Reason == advisory.NoExclusion)
}

// loseAll ends all sessions, because the locks of each may be held by others too. A session that is
// opened meanwhile is checked before it gives out a lock. The mutex is held.
func (l *Locker) loseAll(cause error) {
	pooler.Forget(l.db)
	for _, s := range slices.Collect(maps.Keys(l.sessions)) {
		s.lose(cause)
	}
}

// orphanReturned takes note that a caller of a lost lock has returned. The mutex is held.
func (s *session) orphanReturned() {
	if s.orphans > 0 {
		if s.orphans--; s.orphans == 0 {
			s.cancel()
		}
	}
}
