package locker

import (
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// A room is what the Locker knows of the server's lock table, which all clients of the server share.
// If the table is full, nobody can even connect. A Locker takes no more than half of it. Before it
// takes more than a small part of what was free, it counts how much others use. So Lockers that grow
// at the same time do not fill the table between their counts.
type room struct {
	size      int64
	countedAt time.Time
	used      int64 // by all clients, at the last count
	held      int64 // by this Locker, at the last count
}

const (
	roomPart         = 8                      // between two counts a Locker takes 1/roomPart of what was free
	firstPart        = 32                     // and 1/firstPart of the table before the first count
	recountAfter     = time.Second            // a Locker that holds many locks counts again after that
	recountFullAfter = 100 * time.Millisecond // and at a full table not before that
)

// left returns how many locks a Locker may take that holds some and is asked for more, and whether
// it must count before.
func (r *room) left(held, more int64) (left int64, count bool) {
	age := time.Since(r.countedAt)
	part := r.size / firstPart
	if !r.countedAt.IsZero() {
		free := r.size - r.used
		part = max(free/roomPart, min(free, 1))
	}
	left = min(r.held+part, r.size/2) - held
	switch {
	case held >= r.size/2:
		count = false
	case more > left:
		count = part > 0 || age > recountFullAfter
	default:
		count = age > recountAfter && held > r.size/firstPart
	}
	return left, count
}

// admit returns those of ops to send next, and those to send after them. It refuses those for which
// there is no room.
func (s *session) admit(ops []*op) (now, later []*op, alive bool) {
	for counted := false; ; counted = true {
		s.l.mu.Lock()
		var tries int64
		for _, o := range ops {
			tries += o.tries
		}
		left, count := s.l.room.left(s.l.held, tries)
		if count && !counted {
			s.l.mu.Unlock()
			if !s.countServerLocks() {
				return nil, nil, false
			}
			continue
		}
		if left <= 0 && tries > 0 {
			now = s.refuseForRoom(ops)
			s.l.mu.Unlock()
			return now, nil, true
		}
		s.l.mu.Unlock()
		for n, o := range ops {
			if left -= o.tries; o.tries > 0 && left < 0 {
				return ops[:n], ops[n:], true
			}
		}
		return ops, nil, true
	}
}

// refuseForRoom refuses those of ops that would take a lock, and returns the others. The mutex is
// held.
func (s *session) refuseForRoom(ops []*op) (others []*op) {
	r := &s.l.room
	err := fmt.Errorf("%w: this Locker holds %d locks and all of the server %d, of a table of %d: hold fewer, or raise max_locks_per_transaction",
		advisory.ErrLockTableFull, s.l.held, r.used+s.l.held-r.held, r.size)
	for _, o := range ops {
		if o.tries > 0 {
			o.answer(false, 0, err)
		} else {
			others = append(others, o)
		}
	}
	return others
}

// countServerLocks counts the locks on the server.
func (s *session) countServerLocks() (alive bool) {
	var used int64
	var sent time.Time
	var err error
	for again := true; again; again = lockfn.Canceled(err) {
		sent = time.Now()
		err = s.conn.QueryRowContext(s.ctx, lockfn.LocksInUse).Scan(&used)
	}
	s.l.mu.Lock()
	r := &s.l.room
	r.countedAt, r.used, r.held = time.Now(), used, s.l.held
	if err != nil && !lockfn.LinkGone(err) {
		r.used, err = r.size, nil // no room for the query itself, say
	}
	s.l.mu.Unlock()
	return s.finish(nil, sent, err, nil)
}
