package locker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/settings"
)

// A handle is one caller's hold of a lock: the [advisory.Lock] of a Locker. Its hold is
// nil where there is none: of a try that failed.
type handle struct {
	key      advisory.Key
	hold     *hold
	token    uint64
	local    bool // got inside the process
	since    time.Time
	settings settings.Call
	ctx      context.Context
	cancel   context.CancelCauseFunc

	// Guarded by the Locker's mutex.
	mode     advisory.Mode
	released bool
	works    bool // a function of Do, say, runs under it
	counted  bool // among the Locker's users
}

var _ advisory.Lock = (*handle)(nil)

// none is the Lock of a try that failed.
func none(key advisory.Key, mode advisory.Mode) *handle {
	h := &handle{key: key, mode: mode, released: true}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	h.cancel(advisory.ErrNotHeld)
	return h
}

// String is the key and the mode.
func (h *handle) String() string { return fmt.Sprintf("%s (%v)", h.key, h.Mode()) }

func (h *handle) Key() advisory.Key        { return h.key }
func (h *handle) Token() uint64            { return h.token }
func (h *handle) Context() context.Context { return h.ctx }

func (h *handle) Mode() advisory.Mode {
	if h.hold == nil {
		return h.mode
	}
	l := h.hold.gate.l
	l.mu.Lock()
	defer l.mu.Unlock()
	return h.mode
}

// Unlock is as the interface has it. It takes no longer than the Locker's deadline.
func (h *handle) Unlock() error { return h.unlock(false) }

// unlock releases the lock; sync: also wait where the release is put off.
func (h *handle) unlock(sync bool) error {
	if h.hold == nil {
		return h.wrap("unlock", advisory.ErrNotHeld)
	}
	l := h.hold.gate.l
	l.mu.Lock()
	if h.released {
		l.mu.Unlock()
		return h.wrap("unlock", advisory.ErrNotHeld)
	}
	h.released = true
	if due := h.since.Add(h.settings.HoldAtLeast); time.Now().Before(due) && h.hold.dead == nil && !l.prompt {
		l.deferred.Add(1)
		l.mu.Unlock()
		h.cancel(context.Canceled)
		later := func() error {
			defer l.deferred.Done()
			timer := time.NewTimer(time.Until(due))
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-h.hold.gone:
			case <-l.ending:
			}
			l.mu.Lock()
			return h.give()
		}
		if sync {
			return later()
		}
		go later()
		return nil
	}
	h.cancel(context.Canceled)
	return h.give()
}

// give gives the lock back. It is called with the mutex held, and unlocks it.
func (h *handle) give() error {
	g, l := h.hold.gate, h.hold.gate.l
	delete(h.hold.users, h)
	l.countsNoMore(h)
	var answer <-chan error
	err := h.hold.dead
	told := errors.Is(err, advisory.ErrLost) // the Observer, of the loss
	switch {
	case err != nil:
		h.hold.session.returned()
	case len(h.hold.users) == 0:
		answer = g.release()
	}
	l.mu.Unlock()
	if answer != nil {
		err = <-answer
	}
	err = h.wrap("unlock", err)
	if obs := l.observer(h.settings); obs != nil && !told {
		e := h.event(advisory.Released, err)
		e.Local = answer == nil
		if err != nil && !errors.Is(err, advisory.ErrClosed) {
			e.Kind = advisory.Lost
		}
		obs.Observe(h.ctx, e)
	}
	return err
}

func (h *handle) event(kind advisory.EventKind, err error) advisory.Event {
	return advisory.Event{Kind: kind, Key: h.key, Mode: h.Mode(), Label: h.settings.Label, Held: time.Since(h.since), PID: h.hold.session.pid, Err: err}
}

func (h *handle) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return lockfn.Error(op, h.key, h.Mode(), err)
}

// Downgrade is as the interface has it. It is nothing for a lock that is shared.
func (h *handle) Downgrade(ctx context.Context) error {
	if h.hold == nil {
		return h.wrap("downgrade", advisory.ErrNotHeld)
	}
	g, l := h.hold.gate, h.hold.gate.l
	l.mu.Lock()
	for g.busy && !h.released { // an earlier call, say
		change := l.watch()
		l.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
			return h.wrap("downgrade", bound.Cause(ctx))
		}
		l.mu.Lock()
	}
	switch {
	case h.released:
		l.mu.Unlock()
		return h.wrap("downgrade", advisory.ErrNotHeld)
	case h.hold.dead != nil:
		l.mu.Unlock()
		return h.wrap("downgrade", h.hold.dead)
	case h.mode == advisory.Shared:
		l.mu.Unlock()
		return nil
	case ctx.Err() != nil:
		l.mu.Unlock()
		return h.wrap("downgrade", bound.Cause(ctx))
	}
	answer := make(chan error, 1)
	g.busy = true
	h.hold.session.submit(&op{req: &lockfn.Request{Op: lockfn.OpDowngrade, Key: h.key, Mode: advisory.Exclusive}, done: func(ok bool, _ uint64, err error) {
		g.idle()
		switch {
		case err != nil:
		case !ok:
			err = fmt.Errorf("%w exclusively by its session any more", advisory.ErrNotHeld)
		default:
			h.hold.mode, h.mode = advisory.Shared, advisory.Shared
		}
		answer <- err
		g.resume(true)
	}})
	l.mu.Unlock()
	select {
	case err := <-answer:
		return h.wrap("downgrade", err)
	case <-ctx.Done():
		// It goes on, and Unlock waits for it.
		return h.wrap("downgrade", bound.Cause(ctx))
	}
}
