package locker

import (
	"context"
	"database/sql"

	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// An op is something for the owner to do.
type op struct {
	req      *lockfn.Request                        // a line of a batch; or
	tries    int64                                  // how many locks it may take
	token    bool                                   // draw a token; or
	query    func(context.Context, *sql.Conn) error // anything else; or a ping
	done     func(ok bool, token uint64, err error) // called with the Locker's mutex held
	answered bool                                   // done was called
}

// answer calls done, once. The Locker's mutex is held.
func (o *op) answer(ok bool, token uint64, err error) {
	if !o.answered {
		o.answered = true
		o.done(ok, token, err)
	}
}

// submit queues o. The Locker's mutex is held.
func (s *session) submit(o *op) {
	if !s.alive() {
		// Not from here: the caller is in the middle of something.
		go func() {
			s.l.mu.Lock()
			defer s.l.mu.Unlock()
			o.answer(false, 0, s.err)
		}()
		return
	}
	s.queue = append(s.queue, o)
	if s.wait.gate != nil {
		s.cutSlice() // a lock that it holds is not to be kept for the wait's sake
	}
	s.nudge()
}
