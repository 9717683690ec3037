package locker

import "time"

// A sessionPhase is what a session does.
type sessionPhase uint8

const (
	sessionOpening  sessionPhase = 1 << iota // connects; it may be chosen to wait already
	sessionReady                             // takes and holds locks
	sessionWaiting                           // is to wait for a key: its next slice has not begun
	sessionSlicing                           // a slice of its wait is under way: a cancel may aim at it
	sessionSettling                          // the slice has ended, and its result is not recorded
	sessionLost                              // failed: its locks are lost
	sessionClosed                            // ended because nobody needed it any more
)

func (p sessionPhase) String() string {
	switch p {
	case sessionOpening:
		return "opening"
	case sessionReady:
		return "ready"
	case sessionWaiting:
		return "waiting"
	case sessionSlicing:
		return "slicing"
	case sessionSettling:
		return "settling"
	case sessionLost:
		return "lost"
	case sessionClosed:
		return "closed"
	}
	return "of no phase"
}

// is reports whether p is one of the given phases.
func (p sessionPhase) is(any sessionPhase) bool { return p&any != 0 }

// alive reports whether the session is neither lost nor closed.
func (s *session) alive() bool { return !s.phase.is(sessionLost | sessionClosed) }

// opened reports whether the session has ever been open.
func (s *session) opened() bool { return s.pid != 0 }

// beginReady marks that the session is connected.
func (s *session) beginReady(pid int) {
	if s.phase != sessionOpening {
		illegal("beginReady", s.phase.String())
	}
	s.pid, s.phase = pid, sessionReady
	if s.wait.gate != nil {
		s.phase = sessionWaiting
	}
}

// beginWait has the session wait for g, as the front of g's queue would.
func (s *session) beginWait(g *gate) {
	switch {
	case g.phase != gateIdle:
		illegal("beginWait", g.phase.String())
	case s.wait.gate != nil || !s.phase.is(sessionOpening|sessionReady):
		illegal("beginWait", s.phase.String())
	}
	g.phase, g.waiter = gateWaiting, s
	s.wait.gate, s.wait.mode, s.wait.cut = g, g.queue.front().settings.Mode, false
	if s.phase == sessionReady {
		s.phase = sessionWaiting
	}
	s.nudge()
}

// endWait has the session wait no more, and wakes the calls that wait for that.
func (s *session) endWait() {
	g := s.wait.gate
	s.wait.gate, g.waiter = nil, nil
	if g.phase == gateWaiting {
		g.phase = gateIdle
	}
	if s.phase.is(sessionWaiting | sessionSlicing | sessionSettling) {
		s.phase = sessionReady
	}
	s.l.wakeWatchers()
}

// beginSlice marks that a slice of the wait is sent.
func (s *session) beginSlice() {
	if s.phase != sessionWaiting {
		illegal("beginSlice", s.phase.String())
	}
	s.phase, s.wait.noCancelBefore = sessionSlicing, time.Time{}
	s.wait.slices++
}

// endSlice marks that the slice was answered: no new cancel aims at it.
func (s *session) endSlice() {
	if s.phase == sessionSlicing { // else it was lost meanwhile
		s.phase = sessionSettling
	}
}

// beginNextSlice has the session wait on, once the result of its slice is recorded.
func (s *session) beginNextSlice() {
	if s.phase != sessionSettling {
		illegal("beginNextSlice", s.phase.String())
	}
	s.phase = sessionWaiting
}

// inSlice reports whether the answer of a slice may be due.
func (s *session) inSlice() bool { return s.phase.is(sessionSlicing | sessionSettling) }

// end marks that the session is lost or closed, with err, and takes it from the Locker's list.
func (s *session) end(as sessionPhase, err error) {
	if !s.alive() {
		illegal("end", s.phase.String())
	}
	s.phase, s.err = as, err
	if s.watch != nil {
		s.watch.Stop()
	}
	delete(s.l.sessions, s)
	s.l.lost[s] = struct{}{}
	if s.l.front == s {
		s.l.front = nil
	}
	s.leaveProof()
}
