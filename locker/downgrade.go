package locker

import (
	"context"
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/given"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// Downgrade makes an exclusive lock shared without releasing it. It is a no-op for a shared lock.
// It fails with [advisory.ErrNotHeld] if the lock is released, and with [advisory.ErrLost] if it
// is lost. If ctx ends first, it returns the cause; the downgrade goes on, and Unlock waits for it.
func (h *handle) Downgrade(ctx context.Context) error {
	if h.hold == nil {
		return h.wrap("downgrade", advisory.ErrNotHeld)
	}
	if ctx == nil {
		return h.wrap("downgrade", given.ErrNilCtx)
	}
	answer, change, err := h.beginDowngrade(ctx)
	for change != nil {
		select {
		case <-change:
		case <-ctx.Done():
			return h.wrap("downgrade", bound.Cause(ctx))
		}
		answer, change, err = h.beginDowngrade(ctx)
	}
	if answer == nil {
		return h.wrap("downgrade", err)
	}
	select {
	case err := <-answer:
		return h.wrap("downgrade", err)
	case <-ctx.Done():
		// It goes on, and Unlock waits for it.
		return h.wrap("downgrade", bound.Cause(ctx))
	}
}

// beginDowngrade sends the downgrade and returns where its result comes: nil if there is nothing
// to send, or with an error. While a statement about the key is under way, an earlier call of
// Downgrade, say, it returns change, which is closed when that may be over.
func (h *handle) beginDowngrade(ctx context.Context) (answer <-chan error, change <-chan struct{}, err error) {
	g, l := h.hold.gate, h.hold.gate.l
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case h.released:
		return nil, nil, advisory.ErrNotHeld
	case h.hold.dead != nil:
		return nil, nil, h.hold.dead
	case g.busy():
		return nil, l.watch(), nil
	case h.mode == advisory.Shared:
		return nil, nil, nil
	case ctx.Err() != nil:
		return nil, nil, bound.Cause(ctx)
	}
	result := make(chan error, 1)
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
		result <- err
		g.afterStatement(true)
	}})
	return result, nil, nil
}
