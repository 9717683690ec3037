package locker

import (
	"errors"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/dbconn"
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
	if s.dead != nil {
		return
	}
	limit := s.l.times.Deadline
	if s.slicing && len(s.holds) == 0 {
		limit += s.l.times.Slice
	}
	if left := limit - time.Since(s.answered); left > 0 {
		s.watch.Reset(left)
		return
	}
	s.lose(errOverdue)
}

// late ends the session if an answer to what was sent at that time came so late that the
// server may have let go meanwhile: this process was stopped, say, and its timers come after
// the answer. The mutex is held.
func (s *session) late(sent time.Time) bool {
	if sent.IsZero() || time.Since(sent) < s.l.times.Deadline {
		return false
	}
	s.lose(errOverdue)
	return true
}

// lose ends the session: its locks are lost, all together, and what it was to do
// fails. The mutex is held.
func (s *session) lose(cause error) {
	if s.dead != nil {
		return
	}
	s.dead = cause
	if s.open {
		s.dead = &lossError{cause}
	}
	if s.watch != nil {
		s.watch.Stop()
	}
	delete(s.l.sessions, s)
	if s.l.front == s {
		s.l.front = nil
	}
	if !s.open {
		s.l.noMore = time.Now().Add(time.Second) // open no other to wait, for a while
	}
	var gates []*gate
	for _, h := range s.holds {
		s.orphans += len(h.users)
		h.lost(s.dead)
		gates = append(gates, h.gate)
		s.l.tellLoss(h, s.dead)
	}
	if g := s.waitFor; g != nil {
		s.waitFor, g.waiter = nil, nil
		s.l.wakeWatchers()
		gates = append(gates, g)
	}
	ops := append(s.inFlight, s.queue...)
	s.inFlight, s.queue = nil, nil
	for _, o := range ops {
		o.tell(false, 0, s.dead)
	}
	for _, g := range gates {
		g.advance()
	}
	if !errors.Is(cause, errOverdue) {
		s.orphans = 0 // the server has let go already
	}
	if s.orphans > 0 {
		// To close the connection now would hand the locks over now.
		time.AfterFunc(s.l.times.Failover, s.cancel)
	} else {
		s.cancel()
	}
	s.l.lost[s] = struct{}{}
	s.nudge()
	s.l.keepGuard()
	if s.open {
		pid := s.pid
		go s.l.observe(advisory.Event{Kind: advisory.SessionClosed, PID: pid, Err: cause})
	}
}

// keepGuard sees to it that there is a front session, which guards the sessions that
// wait. The mutex is held.
func (l *Locker) keepGuard() {
	waits := false
	for s := range l.sessions {
		waits = waits || s.waitFor != nil
	}
	if l.front != nil || l.closed || !waits {
		return
	}
	if d := time.Until(l.noMore); d > 0 {
		time.AfterFunc(d, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.keepGuard()
		})
		return
	}
	l.frontSession()
}

// returned takes note that a caller of a lost lock has returned. The mutex is held.
func (s *session) returned() {
	if s.orphans > 0 {
		if s.orphans--; s.orphans == 0 {
			s.cancel()
		}
	}
}

// bury closes the connection, which has settings of its own and belongs to no pool any
// more, once that harms nobody.
func (s *session) bury() {
	s.l.mu.Lock()
	clean := s.dead == nil
	if clean {
		s.dead = errSessionGone
		if s.watch != nil {
			s.watch.Stop()
		}
		delete(s.l.sessions, s)
		s.l.lost[s] = struct{}{}
		if s.l.front == s {
			s.l.front = nil
		}
		for _, h := range s.holds {
			h.lost(s.dead)
		}
		for _, o := range s.queue {
			o.tell(false, 0, s.dead)
		}
		s.queue = nil
	}
	pid := s.pid
	s.l.mu.Unlock()
	if !clean {
		<-s.ctx.Done()
	}
	stuck := time.AfterFunc(2*bound.Abort, s.giveUp) // a driver may not mind its context
	if s.conn != nil {
		dbconn.Discard(s.conn)
		s.conn.Close()
	}
	stuck.Stop()
	s.driver.Store(nil)
	s.unstuck()
	s.cancel()
	if clean {
		s.l.observe(advisory.Event{Kind: advisory.SessionClosed, PID: pid})
	}
}

func (s *session) giveUp() {
	if d := s.driver.Swap(nil); d != nil {
		d.GiveUp()
	}
}
