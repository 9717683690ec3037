package locker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/pooler"
	"github.com/pgadvisory/pgadvisory/internal/statement"
)

const (
	// probeTime bounds the first probe of a session that is being opened.
	probeTime = 3 * time.Second
	// checkTime bounds all probes before a session's first lock.
	checkTime = 30 * time.Second
	// checkPause is the pause between two of them.
	checkPause = 50 * time.Millisecond
	// checkEvery is the pause before a check that could not be made is tried again.
	checkEvery = 10 * time.Second
)

// checkDue reports whether a check is due.
func (l *Locker) checkDue() bool {
	if l.settings.NoServerCheck {
		return false
	}
	return !pooler.Known(l.db)
}

// An uncheckedError says that the check could not be made.
type uncheckedError struct{ error }

func (e uncheckedError) Error() string {
	return fmt.Sprintf("whether a pooler hands sessions to several clients could not be checked (raise MaxOpenConns, or see WithoutServerCheck): %v", e.error)
}

func (e uncheckedError) Unwrap() error { return e.error }

// checkServer checks, on conn, whether locks exclude, before conn is used for anything else. d limits
// the probe. After an error other than an uncheckedError conn must not be used: it leads through a
// pooler, or a lock may be on it.
func (l *Locker) checkServer(ctx context.Context, conn *sql.Conn, d time.Duration) error {
	second, err := pooler.Second(ctx, l.db)
	if err != nil {
		return uncheckedError{err}
	}
	defer second.Close()
	own := pooler.On(ctx, conn)
	err = l.probe(ctx, own, second, d)
	if e, ok := errors.AsType[uncheckedError](err); ok && own.Doubt() {
		if lockfn.Canceled(e.error) { // not wrapped: callers would begin again at once, without end
			return fmt.Errorf("look for a pooler (is statement_timeout too short?): %v", e.error)
		}
		return fmt.Errorf("look for a pooler: %w", e.error)
	}
	return err
}

// checkFirst checks the server before the first lock. On a direct connection it returns an
// uncheckedError if the check could not be made, and the caller makes it later. On others, and if the
// driver does not show it, no lock is given out before the check has succeeded. Then checkFirst
// repeats the check for up to checkTime, each time with more time.
func (l *Locker) checkFirst(ctx context.Context, conn *sql.Conn) error {
	direct := false
	if told, ok := pooler.On(ctx, conn).ToldPID(); ok {
		rows, err := statement.Session{Ctx: ctx, On: conn}.Exec(lockfn.HasPID(told))
		if err != nil {
			return err
		}
		direct = rows == 1
	}
	if st := l.db.Stats(); direct && st.MaxOpenConnections > 0 && st.InUse >= st.MaxOpenConnections {
		return uncheckedError{fmt.Errorf("all %d connections of the pool are in use", st.InUse)}
	}
	end := time.Now().Add(checkTime)
	for d := probeTime; ; d *= 2 {
		err := l.checkServer(ctx, conn, min(d, max(time.Until(end), probeTime)))
		e, missing := errors.AsType[uncheckedError](err)
		if !missing || direct {
			return err
		}
		l.rememberUnchecked(e)
		if time.Now().After(end) { // not wrapped: it is no longer one to go on after
			return fmt.Errorf("no lock is given out before the check: %v", e)
		}
		select {
		case <-ctx.Done():
			return bound.Cause(ctx)
		case <-time.After(checkPause):
		}
	}
}

// rememberUnchecked stores why no check could be made yet, for callers whose ctx ends before it is.
func (l *Locker) rememberUnchecked(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uncheckable = err
}

// whyUnchecked adds the reason to err if no lock could be given out for want of a check.
func (l *Locker) whyUnchecked(err error) error {
	err = l.whyUnproven(err)
	if !l.checkDue() {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.uncheckable == nil:
		return err
	case err == nil:
		return l.uncheckable
	}
	return fmt.Errorf("%w: %w", err, l.uncheckable)
}

// probe returns an [*advisory.UnsafeServerError] or an uncheckedError, if not nil.
func (l *Locker) probe(ctx context.Context, own, second *pooler.Link, d time.Duration) error {
	ctx, stop := context.WithTimeout(ctx, d)
	defer stop()
	_, err := pooler.Probe(ctx, own.Exec, second.Exec)
	switch {
	case err == nil:
		pooler.Remember(l.db)
	case !errors.Is(err, advisory.ErrUnsafeServer):
		err = uncheckedError{err}
	}
	return err
}

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
	c.result = c.l.probe(ctx, own, c.second, c.l.times.Check)
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
