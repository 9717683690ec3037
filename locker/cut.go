package locker

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// cancelTargets lists the sessions that wait on the server and are to be guarded, and those that
// are to wait no more; none at which a cancel aims already. The mutex is held.
func (l *Locker) cancelTargets() (waiters, leaving []*session) {
	for s := range l.sessions {
		switch {
		case !s.mayCancel():
		case s.wait.cut:
			leaving = append(leaving, s)
		default:
			waiters = append(waiters, s)
		}
	}
	return waiters, leaving
}

// cutSlice ends the session's slice: its callers are gone, or want another mode. The mutex
// is held.
func (s *session) cutSlice() {
	if s.wait.cut || !s.alive() {
		return
	}
	s.wait.cut = true
	slice := s.wait.slices
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
			defer aim.finish()
			result, err := conn.ExecContext(ctx, lockfn.Guard(nil, []int{s.pid}))
			if err == nil {
				n, _ := result.RowsAffected()
				missed.Store(n == 0)
			}
			return err
		},
		done: func(bool, uint64, error) {
			if missed.Load() && len(s.queue) > 0 {
				time.AfterFunc(cutAgainAfter, func() { s.cutAgain(slice) })
			}
		},
	})
}

// cutAgainAfter is when a cancel that came too early is sent again.
const cutAgainAfter = 5 * time.Millisecond

// cutAgain cancels the session's slice once more, if it is that one still.
func (s *session) cutAgain(slice int) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if s.wait.cut && s.wait.slices == slice && s.phase == sessionSlicing {
		s.wait.noCancelBefore = time.Time{} // nothing was cancelled
		s.wait.cut = false
		s.cutSlice()
	}
}
