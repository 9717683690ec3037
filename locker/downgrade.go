package locker

import (
	"context"
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// Downgrade is as the interface has it. It is nothing for a lock that is shared.
func (h *handle) Downgrade(ctx context.Context) error {
	if h.hold == nil {
		return h.wrap("downgrade", advisory.ErrNotHeld)
	}
	g, l := h.hold.gate, h.hold.gate.l
	l.mu.Lock()
	for g.busy() && !h.released { // an earlier call, say
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
	g.beginStatement()
	h.hold.session.submit(&op{req: &lockfn.Request{Op: lockfn.OpDowngrade, Key: h.key, Mode: advisory.Exclusive}, done: func(ok bool, _ uint64, err error) {
		g.endStatement()
		switch {
		case err != nil:
		case !ok:
			err = fmt.Errorf("%w exclusively by its session any more", advisory.ErrNotHeld)
		default:
			h.hold.mode, h.mode = advisory.Shared, advisory.Shared
		}
		answer <- err
		g.afterStatement(true)
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
