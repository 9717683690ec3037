package locker

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/pooler"
)

// checkEvery is the pause before a check that could not be made is tried again.
const checkEvery = 10 * time.Second

// checkAgain makes the check that could not be made when the session was opened. If locks do not
// exclude, the session is lost.
func (l *Locker) checkAgain() error {
	ctx, stop := l.untilEnding()
	defer stop()
	second, err := pooler.Second(ctx, l.db)
	if err != nil {
		return uncheckedError{err}
	}
	c := &laterCheck{l: l, second: second}
	defer c.closeUntaken()
	answer, err := c.submit()
	if err != nil {
		return err
	}
	if err := <-answer; err != nil {
		return err
	}
	return c.result
}

// untilEnding returns a context that ends with the Locker.
func (l *Locker) untilEnding() (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		select {
		case <-l.ending:
			stop()
		case <-ctx.Done():
		}
	}()
	return ctx, stop
}

// A laterCheck is a check on a session that has locks already.
type laterCheck struct {
	l      *Locker
	second *pooler.Link
	taken  atomic.Bool // second has an owner: the query, or nobody needs it
	result error
}

// submit has the owner of the front session make the check. After the answer, result is the check's
// result unless the answer itself is an error.
func (c *laterCheck) submit() (answer <-chan error, err error) {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.frontSession()
	if err != nil {
		return nil, err
	}
	answers := make(chan error, 1)
	s.submit(&op{
		query: func(ctx context.Context, conn *sql.Conn) error { return c.run(ctx, s, conn) },
		done:  func(_ bool, _ uint64, err error) { answers <- err },
	})
	return answers, nil
}

// run makes the check on the connection of s.
func (c *laterCheck) run(ctx context.Context, s *session, conn *sql.Conn) error {
	if !c.taken.CompareAndSwap(false, true) {
		return errNothingHeard
	}
	defer c.second.Close()
	// The session holds locks: a statement on it is never ended, and its own
	// deadline runs meanwhile.
	own := pooler.On(ctx, conn)
	route := pooler.Indirect
	if told, ok := own.ToldPID(); ok && told == int64(s.pid) {
		route = pooler.Direct
	}
	c.result = c.l.probe(ctx, own, c.second, route, c.l.times.Check)
	if errors.Is(c.result, advisory.ErrUnsafeServer) || own.Doubt() {
		return c.result
	}
	s.finish(nil, own.Answered(), nil, nil)
	return errNothingHeard
}

// closeUntaken closes second unless the query has taken it, and keeps it from taking it.
func (c *laterCheck) closeUntaken() {
	if c.taken.CompareAndSwap(false, true) {
		c.second.Close()
	}
}

// checkLater makes the check in the background. The mutex is held.
func (l *Locker) checkLater() {
	if l.closed || time.Since(l.checkedAt) < checkEvery {
		return
	}
	if st := l.db.Stats(); st.MaxOpenConnections > 0 && st.InUse >= st.MaxOpenConnections {
		return
	}
	l.checkedAt = time.Now()
	l.checks.Go(func() { l.checkAgain() })
}

// ensureChecked makes the check for Ping, if it is due.
func (l *Locker) ensureChecked(ctx context.Context) error {
	if !l.checkDue() {
		return nil
	}
	answer := make(chan error, 1)
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return advisory.ErrClosed
	}
	l.checks.Go(func() { answer <- l.checkAgain() })
	l.mu.Unlock()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return bound.Cause(ctx)
	}
}
