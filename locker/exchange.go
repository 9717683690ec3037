package locker

import (
	"context"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/statement"
)

// exchange sends requests as one statement. It returns the pid of the session that answered, a
// letter t or f for each request, and a token. See [lockfn.Batch].
//
// A single request goes as a statement without parameters, which the server answers quicker. If
// another session answers that, it has done nothing, and the batch finds out which session it was.
func (s *session) exchange(reqs []lockfn.Request) (pid int, answers string, token uint64, err error) {
	ctx, end := s.brief()
	defer end()
	if text := lockfn.Single(reqs[0], s.pid); len(reqs) == 1 && text != "" && !s.l.settings.Fencing {
		switch rows, err := (statement.Session{Ctx: ctx, On: s.conn}).Exec(text); {
		case err != nil:
			return 0, "", 0, err
		case rows == lockfn.SingleYes:
			return s.pid, "t", 0, nil
		case rows == lockfn.SingleNo:
			return s.pid, "f", 0, nil
		}
	}
	keys, codes := lockfn.BatchArgs(reqs)
	// Scan closes the rows, which reads up to the end of the transaction: a token
	// is not durable before.
	var drawn string
	err = s.batch.QueryRowContext(ctx, keys, codes).Scan(&pid, &answers, &drawn)
	if err == nil {
		token, err = lockfn.ReadToken(drawn, s.l.settings.TokenEpoch)
	}
	return pid, answers, token, err
}

// brief returns a context for a statement that never waits on the server, which is quicker than
// s.ctx. When s.ctx ends, unstick ends the statement at once.
func (s *session) brief() (ctx context.Context, end func()) {
	// Once s.ctx has ended, unstick may have been here.
	if d := s.driver.Load(); d == nil || s.ctx.Err() != nil || !d.Interruptible() {
		return s.ctx, func() {}
	}
	s.quiet.Store(true)
	return bound.Quiet(s.ctx), func() { s.quiet.Store(false) }
}

// unstick closes the network connection below an owner that is in a call which did not
// return after the end of its context, or does not know of that end.
func (s *session) unstick() {
	if !s.quiet.Load() {
		time.Sleep(bound.Abort)
	}
	s.giveUp()
}
