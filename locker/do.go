package locker

import (
	"context"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/settings"
	"github.com/pgadvisory/pgadvisory/internal/work"
)

// TryDo runs fn under the lock if the key is free.
func (l *Locker) TryDo(ctx context.Context, key advisory.Key, fn func(ctx context.Context) error, opts ...advisory.LockerOption) (ran bool, err error) {
	if fn == nil {
		return false, lockfn.Error("try lock", key, advisory.Exclusive, work.ErrNilFn)
	}
	h, err := l.acquire(ctx, time.Now(), "try lock", key, opts, true)
	if h.hold == nil {
		return false, err
	}
	return true, h.do(ctx, fn)
}

// Do waits for the lock, as [Locker.Lock] does, and runs fn under it.
func (l *Locker) Do(ctx context.Context, key advisory.Key, fn func(ctx context.Context) error, opts ...advisory.LockerOption) error {
	if fn == nil {
		return lockfn.Error("lock", key, advisory.Exclusive, work.ErrNilFn)
	}
	h, err := l.acquire(ctx, time.Now(), "lock", key, opts, false)
	if h.hold == nil {
		return err
	}
	return h.do(ctx, fn)
}

// begin takes note that work begins: Shutdown waits for its end, also if the lock is lost.
func (h *handle) begin() {
	l := h.hold.gate.l
	l.mu.Lock()
	defer l.mu.Unlock()
	h.works = true
	l.addUser(h)
}

// do runs fn with a ctx that ends with ctx or with the lock, and releases the lock.
func (h *handle) do(ctx context.Context, fn func(context.Context) error) error {
	h.begin()
	return work.Under(ctx, h, fn, func() error { return h.unlock(true) }, func(lost error) error { return h.wrap("work under", lost) })
}

// Wrap returns a job function that runs fn under the lock, or returns an error that is
// [advisory.ErrNotAcquired] if the key is not free, at once or within [advisory.MaxWait]:
// middleware for schedulers.
func (l *Locker) Wrap(key advisory.Key, fn func(ctx context.Context) error, opts ...advisory.LockerOption) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		opts := opts
		if s, err := settings.Locker(opts); err == nil && s.MaxWait == nil {
			opts = append(opts[:len(opts):len(opts)], advisory.MaxWait(0))
		}
		return l.Do(ctx, key, fn, opts...)
	}
}
