package memlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/given"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/settings"
	"github.com/pgadvisory/pgadvisory/internal/work"
)

// pid returns the PID of the Locker's holds. Those of other nodes count up from there.
func (l *Locker) pid() int { return cmp.Or(l.PID, 1) }

// A hold is a lock that a caller, or another node, has; of a try that failed it has no
// line.
type hold struct {
	line     *line
	key      advisory.Key
	token    uint64
	since    time.Time
	settings settings.Call
	other    bool // another node's
	pid      int
	ctx      context.Context
	cancel   context.CancelCauseFunc

	// Guarded by the Locker's mutex.
	mode     advisory.Mode
	released bool
	gone     error // it was lost, or the Locker was closed
}

var _ advisory.Lock = (*hold)(nil)

// none is the Lock of a call that did not get it.
func none(key advisory.Key, m advisory.Mode) *hold {
	h := &hold{key: key, mode: m}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	h.cancel(advisory.ErrNotHeld)
	return h
}

// String is the key and the mode.
func (h *hold) String() string { return fmt.Sprintf("%s (%v)", h.key, h.Mode()) }

func (h *hold) Key() advisory.Key        { return h.key }
func (h *hold) Token() uint64            { return h.token }
func (h *hold) Context() context.Context { return h.ctx }

func (h *hold) Mode() advisory.Mode {
	if h.line == nil {
		return h.mode
	}
	h.line.l.mu.Lock()
	defer h.line.l.mu.Unlock()
	return h.mode
}

// end takes the lock away. The mutex is held.
func (h *hold) end(cause error) {
	h.gone = cause
	h.cancel(cause)
	h.line.remove(h)
}

// Unlock is as the interface has it.
func (h *hold) Unlock() error { return h.unlock(false) }

// unlock releases the lock; sync: also wait where the release is put off.
func (h *hold) unlock(sync bool) error {
	if h.line == nil {
		return lockfn.Error("unlock", h.key, h.mode, advisory.ErrNotHeld)
	}
	l := h.line.l
	l.mu.Lock()
	if h.released {
		defer l.mu.Unlock()
		return lockfn.Error("unlock", h.key, h.mode, advisory.ErrNotHeld)
	}
	h.released = true
	h.cancel(context.Canceled)
	left := time.Until(h.since.Add(h.settings.HoldAtLeast))
	if left <= 0 || h.gone != nil || l.closed {
		return h.give()
	}
	l.deferred.Add(1)
	l.mu.Unlock()
	later := func() error {
		defer l.deferred.Done()
		l.mu.Lock()
		return h.give()
	}
	if sync {
		time.Sleep(left)
		return later()
	}
	time.AfterFunc(left, func() { later() })
	return nil
}

// give gives the lock back. It is called with the mutex held, and unlocks it.
func (h *hold) give() error {
	stays := false
	gone, mode := h.gone, h.mode
	if gone == nil {
		stays = h.line.remove(h)
	}
	h.line.l.mu.Unlock()
	err := lockfn.Error("unlock", h.key, mode, gone)
	if !errors.Is(gone, advisory.ErrLost) { // that has been told
		h.observe(advisory.Event{Kind: advisory.Released, Held: time.Since(h.since), Local: stays, Err: err})
	}
	return err
}

func (h *hold) observe(e advisory.Event) {
	if o := h.settings.Observer; o != nil {
		e.Key, e.Mode, e.Label, e.PID = h.key, h.Mode(), h.settings.Label, h.pid
		o.Observe(h.ctx, e)
	}
}

// Downgrade is as the interface has it. It is nothing for a lock that is shared.
func (h *hold) Downgrade(ctx context.Context) error {
	if h.line == nil {
		return lockfn.Error("downgrade", h.key, h.mode, advisory.ErrNotHeld)
	}
	if ctx == nil {
		return lockfn.Error("downgrade", h.key, h.Mode(), given.ErrNilCtx)
	}
	l := h.line.l
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	switch {
	case h.released:
		err = advisory.ErrNotHeld
	case h.gone != nil:
		err = h.gone
	case h.mode == advisory.Shared:
	case ctx.Err() != nil:
		err = bound.Cause(ctx)
	default:
		h.mode = advisory.Shared
		h.line.advance(true)
	}
	return lockfn.Error("downgrade", h.key, h.mode, err)
}

// do runs fn with a ctx that ends with ctx or with the lock, and releases the lock.
func (h *hold) do(ctx context.Context, fn func(context.Context) error) error {
	return work.Under(ctx, h, fn, func() error { return h.unlock(true) }, func(lost error) error { return lockfn.Error("work under", h.key, h.Mode(), lost) })
}
