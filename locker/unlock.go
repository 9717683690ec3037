package locker

import (
	"context"
	"errors"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
)

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
	if due := h.since.Add(h.settings.HoldAtLeast); time.Now().Before(due) && h.hold.dead == nil && !l.noDelay {
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
	l.removeUser(h)
	var answer <-chan error
	err := h.hold.dead
	told := errors.Is(err, advisory.ErrLost) // the Observer, of the loss
	switch {
	case err != nil:
		h.hold.session.orphanReturned()
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
