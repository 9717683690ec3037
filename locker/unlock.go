package locker

import (
	"context"
	"errors"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// Unlock releases the lock, or hands it to the next caller of this process. It takes no longer
// than the Locker's deadline. It fails with [advisory.ErrNotHeld] if the lock is released already,
// and with [advisory.ErrLost] if it is lost.
func (h *handle) Unlock() error { return h.unlock(false) }

// unlock releases the lock. With sync it also waits for a release that is put off.
func (h *handle) unlock(sync bool) error {
	if h.hold == nil {
		return h.wrap("unlock", advisory.ErrNotHeld)
	}
	due, r, err := h.beginRelease()
	switch {
	case err != nil:
		return h.wrap("unlock", err)
	case due.IsZero():
		return h.awaitRelease(r)
	}
	h.cancel(context.Canceled)
	if sync {
		return h.releaseAt(due)
	}
	go h.releaseAt(due)
	return nil
}

// A release is what became of one.
type release struct {
	answer <-chan error // where the server's answer comes; nil if the lock stays in this process
	err    error        // the lock was lost before
}

// beginRelease marks the handle as released, and releases it, or returns when the release is due.
func (h *handle) beginRelease() (due time.Time, r release, err error) {
	l := h.hold.gate.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.released {
		return due, r, advisory.ErrNotHeld
	}
	h.released = true
	if due := h.since.Add(h.settings.HoldAtLeast); time.Now().Before(due) && h.hold.dead == nil && !l.noDelay {
		l.deferred.Add(1)
		return due, r, nil
	}
	h.cancel(context.Canceled) // before anybody else has the lock
	return due, h.leaveHold(), nil
}

// releaseAt releases the lock when that is due, when the lock is lost, or when the Locker ends.
func (h *handle) releaseAt(due time.Time) error {
	l := h.hold.gate.l
	defer l.deferred.Done()
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.hold.gone:
	case <-l.ending:
	}
	l.mu.Lock()
	r := h.leaveHold()
	l.mu.Unlock()
	return h.awaitRelease(r)
}

// leaveHold takes the handle off its hold, and releases that if no other handle uses it. The
// mutex is held.
func (h *handle) leaveHold() (r release) {
	delete(h.hold.users, h)
	h.hold.gate.l.removeUser(h)
	r.err = h.hold.dead
	switch {
	case r.err != nil:
		h.hold.session.orphanReturned()
	case len(h.hold.users) == 0:
		r.answer = h.hold.gate.release()
	}
	return r
}

// awaitRelease waits for the server's answer and reports the release to the Observer, which
// has heard already of a lock that is lost.
func (h *handle) awaitRelease(r release) error {
	reported := errors.Is(r.err, advisory.ErrLost)
	err := r.err
	if r.answer != nil {
		err = <-r.answer
	}
	err = h.wrap("unlock", err)
	if obs := h.hold.gate.l.observer(h.settings); obs != nil && !reported {
		e := h.event(advisory.Released, err)
		e.Local = r.answer == nil
		if err != nil && !errors.Is(err, advisory.ErrClosed) {
			e.Kind = advisory.Lost
		}
		obs.Observe(h.ctx, e)
	}
	return err
}
