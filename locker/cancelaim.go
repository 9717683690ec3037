package locker

import (
	"time"

	"github.com/pgadvisory/pgadvisory/internal/bound"
)

// A cancelAim is a cancel that is under way to sessions that wait. PostgreSQL ignores a cancel that
// finds its session idle, and an error in the server's log is what it is to one that has sent its next
// statement. So a session whose slice has ended sends nothing before the cancel is answered.
type cancelAim chan struct{}

// aimAt begins a cancel of what these sessions wait for. The mutex is held.
func (l *Locker) aimAt(lists ...[]*session) cancelAim {
	a := make(cancelAim)
	for _, list := range lists {
		for _, s := range list {
			s.wait.aim = a
			if s.wait.cut { // it is to be cancelled, and not twice in a row
				s.wait.noCancelBefore = time.Now().Add(l.times.Heartbeat / 2)
			}
		}
	}
	return a
}

// aimAtSlice begins a cancel of the slice that s is to end early; nil if it has ended, or another
// cancel is under way.
func (l *Locker) aimAtSlice(s *session) cancelAim {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.wait.cut || !s.mayCancel() {
		return nil
	}
	return l.aimAt([]*session{s})
}

// mayCancel reports whether a cancel may aim at s. The mutex is held.
func (s *session) mayCancel() bool {
	return s.phase == sessionSlicing && !s.wait.aim.underWay() && !time.Now().Before(s.wait.noCancelBefore)
}

func (a cancelAim) underWay() bool {
	select {
	case <-a:
		return false
	default:
		return a != nil
	}
}

// finish takes note that the cancel was answered, or that its link is gone.
func (a cancelAim) finish() {
	if a != nil {
		close(a)
	}
}

// awaitCancels returns when no cancel is under way to s, whose slice has ended. It does not wait for one
// whose link seems to be dead.
func (s *session) awaitCancels() {
	s.l.mu.Lock()
	s.endSlice()
	a := s.wait.aim
	s.l.mu.Unlock()
	if a != nil {
		late := time.NewTimer(bound.Grace)
		defer late.Stop()
		select {
		case <-a:
		case <-late.C:
			s.l.mu.Lock()
			s.wait.aim = nil // another session may cancel the next slice
			s.l.mu.Unlock()
		case <-s.ctx.Done():
		}
	}
}

func pids(list []*session) (pids []int) {
	for _, s := range list {
		pids = append(pids, s.pid)
	}
	return pids
}
