package memlock

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/given"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/settings"
	"github.com/pgadvisory/pgadvisory/internal/under"
	"github.com/pgadvisory/pgadvisory/internal/wait"
)

// acquire returns the hold, or one that holds nothing.
func (l *Locker) acquire(ctx context.Context, op string, key advisory.Key, opts []advisory.LockerOption, try bool) (*hold, error) {
	start := time.Now()
	s, err := l.check(key, opts)
	if err == nil && ctx == nil {
		err = given.ErrNilCtx
	}
	if err != nil {
		return none(key, s.Mode), lockfn.Error(op, key, s.Mode, err)
	}
	w := &waiter{ctx: ctx, settings: s, done: make(chan struct{})}
	switch {
	case ctx.Err() != nil && try:
		err = bound.Cause(ctx)
	case ctx.Err() != nil:
		err = &advisory.NotAcquiredError{Key: key, Mode: s.Mode, Cause: bound.Cause(ctx)}
	case under.Holds(ctx, key):
		err = fmt.Errorf("%w by the work that asks for it: %s", advisory.ErrAlreadyHeld, key)
	default:
		err = l.wait(w, key, try, start)
	}
	err = lockfn.Error(op, key, s.Mode, err)
	e := advisory.Event{Kind: advisory.NotAcquired, Key: key, Mode: s.Mode, Label: s.Label, Waited: time.Since(start), Err: err}
	if w.hold != nil {
		e.Kind, e.Local, e.PID = advisory.Acquired, w.local, l.pid()
	}
	if s.Observer != nil {
		s.Observer.Observe(ctx, e)
	}
	if w.hold == nil {
		return none(key, s.Mode), err
	}
	return w.hold, nil
}

// wait has w answered. A try that fails is no error.
func (l *Locker) wait(w *waiter, key advisory.Key, try bool, start time.Time) error {
	s := w.settings
	once := try || s.MaxWait != nil && *s.MaxWait == 0
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return advisory.ErrClosed
	}
	n := l.line(key)
	if n.enter(w, once) {
		l.mu.Unlock()
		return nil
	}
	if once {
		defer l.mu.Unlock()
		if try {
			s.SetHolders(n.holders())
			return nil
		}
		return &advisory.NotAcquiredError{Key: key, Mode: s.Mode, Waited: time.Since(start), Holders: n.holders()}
	}
	l.mu.Unlock()
	return l.await(w, n, start)
}

// await waits for the answer to w, which is in the line n, until its ctx or MaxWait ends.
func (l *Locker) await(w *waiter, n *line, start time.Time) error {
	s, key := w.settings, n.key
	limit := w.ctx
	if s.MaxWait != nil {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeout(w.ctx, *s.MaxWait)
		defer cancel()
	}
	// The caller's Observer hears nothing more of the wait once it has ended.
	defer wait.Long(w.ctx, s.Observer, key, s, start, func(context.Context) []advisory.Holder {
		l.mu.Lock()
		defer l.mu.Unlock()
		return n.holders()
	})()
	select {
	case <-w.done:
		return w.err
	case <-limit.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		holders := n.holders()
		if !n.leave(w) {
			return w.err // it was answered just before
		}
		e := &advisory.NotAcquiredError{Key: key, Mode: s.Mode, Waited: time.Since(start), Holders: holders}
		if w.ctx.Err() != nil {
			e.Cause = bound.Cause(w.ctx)
		}
		return e
	}
}

func (l *Locker) check(key advisory.Key, opts []advisory.LockerOption) (settings.Call, error) {
	if l.Bad != nil {
		return settings.Call{}, l.Bad
	}
	s, err := settings.Locker(opts)
	if err != nil {
		return s, err
	}
	if s.Observer == nil {
		s.Observer, _ = l.Defaults.Observer.(advisory.Observer)
	}
	s.WaitingAfter = cmp.Or(s.WaitingAfter, l.Defaults.WaitingAfter)
	return s, settings.CheckKeys(key)
}
