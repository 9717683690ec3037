package locker

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/statement"
)

// reconcile restores order after a batch that failed: it keeps what it had taken before.
// What the server has and we did not know of is released; what it does not have any
// more was released. If that is cancelled, too, it begins again.
func (s *session) reconcile(ops []*op, cause error) bool {
	for {
		sent := time.Now()
		done, err := s.release(ops)
		if lockfn.Canceled(err) {
			if !s.finish(nil, sent, nil, nil) {
				return false
			}
			continue
		}
		if err != nil {
			return s.finish(nil, sent, errors.Join(cause, err), nil)
		}
		return s.finish(ops, time.Time{}, nil, func(o *op) {
			if done[o] {
				o.answer(true, 0, nil)
			} else {
				o.answer(false, 0, lockfn.Meaning(cause))
			}
		})
	}
}

// release releases on the server what this session does not know of, and the locks that
// ops were to unlock. It returns those ops that are done then.
func (s *session) release(ops []*op) (done map[*op]bool, err error) {
	sent := time.Now()
	have, err := s.heldOnServer()
	if err == nil {
		err = s.heard(sent)
	}
	if err != nil {
		return nil, err
	}
	want := map[advisory.Key]advisory.Mode{}
	s.l.mu.Lock()
	for k, h := range s.holds {
		want[k] = h.mode
	}
	s.l.mu.Unlock()
	done = map[*op]bool{}
	for _, o := range ops {
		k := o.req.Key
		switch o.req.Op {
		case lockfn.OpUnlock:
			done[o] = true
			delete(want, k)
		case lockfn.OpDowngrade:
			if !slices.Contains(have, advisory.HeldLock{Key: k, Mode: advisory.Exclusive}) {
				done[o] = true
				want[k] = advisory.Shared
			}
		}
	}
	for _, h := range have {
		if m, ok := want[h.Key]; ok && m == h.Mode {
			delete(want, h.Key)
			continue
		}
		sent := time.Now()
		_, err := s.conn.ExecContext(s.ctx, lockfn.Unlock(h.Key, h.Mode))
		if err == nil {
			err = s.heard(sent)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(want) > 0 {
		return nil, errLockGone
	}
	return done, nil
}

// heard takes note of the answer to what was sent at that time: there may be more to send than the
// deadline allows for. It fails if the session is lost.
func (s *session) heard(sent time.Time) error {
	if !s.finish(nil, sent, nil, nil) {
		return errSessionGone
	}
	return nil
}

func (s *session) heldOnServer() (locks []advisory.HeldLock, err error) {
	err = statement.Session{Ctx: s.ctx, On: s.conn}.Query(lockfn.HeldOn, nil, func(rows *sql.Rows) error {
		l, pid, err := lockfn.ScanHeldOn(rows)
		switch {
		case err != nil:
		case pid == 0:
			locks = append(locks, l)
		case pid != s.pid:
			return s.changed(fmt.Sprintf("pid %d", pid))
		}
		return err
	})
	return locks, err
}
