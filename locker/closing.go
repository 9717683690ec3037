package locker

import (
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/dbconn"
)

// closeConnection closes the connection, which has settings of its own and belongs to no pool any
// more, once that harms nobody.
func (s *session) closeConnection() {
	s.l.mu.Lock()
	clean := s.alive()
	if clean {
		s.end(sessionClosed, errSessionGone)
		if g := s.wait.gate; g != nil {
			s.endWait()
			g.advance()
		}
		for _, h := range s.holds {
			h.lost(s.err)
		}
		for _, o := range s.queue {
			o.answer(false, 0, s.err)
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
	s.stopUnstick()
	s.cancel()
	if clean {
		go s.l.observe(advisory.Event{Kind: advisory.SessionClosed, PID: pid}) // Close does not wait for the Observer
	}
}

func (s *session) giveUp() {
	if d := s.driver.Swap(nil); d != nil {
		d.GiveUp()
	}
}
