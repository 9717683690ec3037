package locker

import (
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// Holds reports whether this Locker holds key, by its own clock and without a round
// trip: for a health check.
func (l *Locker) Holds(key advisory.Key) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.gates[key]
	if g == nil || g.hold == nil || len(g.hold.users) == 0 {
		return false
	}
	return time.Since(g.hold.session.answered) < l.times.Deadline && g.hold.session.proven()
}

// Stats are numbers of the moment.
type Stats struct {
	Sessions int // connections that take and hold locks; WithStandby uses one more
	Held     int // locks held on the server
	Users    int // locks that callers have, and work under lost ones; readers share one of the server
	Waiting  int // callers that wait

	// LastAnswer is when the last statement that the server has answered was sent, on the session
	// that is silent the longest. Sessions that only wait do not count. While the server answers, it
	// is at most a heartbeat and a round trip ago; 8 s more on a session that holds locks and waits,
	// or has just waited. It is zero without a session.
	LastAnswer time.Time
}

// Stats returns the numbers of the moment. It looks at each key that is held or waited for: some
// nanoseconds each, with the mutex held. To count callers as they come and go instead would put
// a counter into each of the ways in which a request is answered.
func (l *Locker) Stats() Stats {
	if l == nil {
		return Stats{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	st := Stats{Sessions: len(l.sessions), Held: int(l.held), Users: len(l.users)}
	st.Waiting = int(l.awaiting.Load())
	for s := range l.sessions {
		waits := s.wait.gate != nil && len(s.holds) == 0
		if s.opened() && !waits && (st.LastAnswer.IsZero() || s.answered.Before(st.LastAnswer)) {
			st.LastAnswer = s.answered
		}
	}
	for _, g := range l.gates {
		st.Waiting += g.queue.len()
	}
	return st
}

// addUser counts h among the users, for which Shutdown waits. The mutex is held.
func (l *Locker) addUser(h *handle) {
	l.users[h] = struct{}{}
}

// removeUser takes note that h is given back, or lost with no work under it. The mutex
// is held.
func (l *Locker) removeUser(h *handle) {
	delete(l.users, h)
	if len(l.users) == 0 && l.refusal != nil {
		l.closeDrained()
	}
}

func (l *Locker) closeDrained() {
	select {
	case <-l.drained:
	default:
		close(l.drained)
	}
}
