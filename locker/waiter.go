package locker

import (
	"time"
)

// waitFor lets a session wait on the server for g. If none may, it polls g. The mutex is held.
func (l *Locker) waitFor(g *gate) {
	if s := l.sessionToWait(); s != nil {
		s.beginWait(g)
		return
	}
	l.pollFor(g)
}

// sessionToWait returns a session that waits for nothing and is not the front session. It prefers one
// that holds nothing, then a new one, then the one that holds the fewest locks. It returns nil if none
// may wait.
func (l *Locker) sessionToWait() *session {
	if l.pollOnly || l.closed || l.cutOff() {
		return nil
	}
	l.frontSession() // it guards the sessions that wait
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
		if s.mayWait() && s.phase == sessionReady && time.Now().After(s.wait.notBefore) && (least == nil || len(s.holds) < len(least.holds)) {
			least = s
		}
	}
	return least
}

// mayWait reports whether s has nothing to do and does not guard others. The mutex is held.
func (s *session) mayWait() bool {
	return s != s.l.front && s.alive() && !s.closing && s.wait.gate == nil && len(s.queue) == 0 && len(s.inFlight) == 0
}

// roomForSession reports whether another session may be opened to wait. The mutex is held.
func (l *Locker) roomForSession() bool {
	if len(l.sessions) >= l.settings.MaxConns || time.Now().Before(l.outage.until) {
		return false
	}
	if st := l.db.Stats(); st.MaxOpenConnections > 0 {
		taken := st.InUse
		for s := range l.sessions {
			if s.phase == sessionOpening {
				taken++ // soon
			}
		}
		for _, p := range l.proofs {
			if !p.open {
				taken++ // its witness, soon
			}
		}
		if taken >= st.MaxOpenConnections-1 {
			return false // work under a lock may need the last connection
		}
	}
	return true
}

// waitsAs reports whether s waits as the front of g's queue would.
func (s *session) waitsAs(g *gate) bool {
	front := g.queue.front()
	return front != nil && !front.once && front.settings.Mode == s.wait.mode
}

// keepGuard opens a front session if there is none and a session waits, because the front session
// guards the sessions that wait. The mutex is held.
func (l *Locker) keepGuard() {
	waits := false
	for s := range l.sessions {
		waits = waits || s.wait.gate != nil
	}
	if l.front != nil || l.closed || !waits || l.guardDue {
		return
	}
	if d := time.Until(l.outage.until); d > 0 {
		l.guardDue = true
		time.AfterFunc(d, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.guardDue = false
			l.keepGuard()
		})
		return
	}
	l.frontSession()
}
