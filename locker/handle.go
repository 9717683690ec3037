package locker

import (
	"context"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
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
}

var _ advisory.Lock = (*handle)(nil)

// noLock is the Lock of a try that failed.
func noLock(key advisory.Key, mode advisory.Mode) *handle {
	h := &handle{key: key, mode: mode, released: true}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	h.cancel(advisory.ErrNotHeld)
	return h
}

// String is the key and the mode.
func (h *handle) String() string { return fmt.Sprintf("%s (%v)", h.key, h.Mode()) }

func (h *handle) Key() advisory.Key { return h.key }

func (h *handle) Token() uint64 { return h.token }

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

func (h *handle) event(kind advisory.EventKind, err error) advisory.Event {
	return advisory.Event{Kind: kind, Key: h.key, Mode: h.Mode(), Label: h.settings.Label, Held: time.Since(h.since), PID: h.hold.session.pid, Err: err}
}

func (h *handle) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return lockfn.Error(op, h.key, h.Mode(), err)
}
