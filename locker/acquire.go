package locker

import (
	"context"
	"errors"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/wait"
)

// TryLock makes one try. It is no round trip if this process has the key, and shares one
// with all others that ask at the same time if not.
func (l *Locker) TryLock(ctx context.Context, key advisory.Key, opts ...advisory.LockerOption) (advisory.Lock, bool, error) {
	h, err := l.acquire(ctx, time.Now(), "try lock", key, opts, true)
	return h, h.hold != nil, err
}

// Lock waits until it has the lock. It fails with an [*advisory.NotAcquiredError] when ctx or
// [advisory.MaxWait] ends before.
//
// A restart or a failover of the server does not end the wait, nor does a server that cannot be
// reached from the beginning. If the time of the wait ends meanwhile, Cause of its error is ctx's
// error and that of the last attempt to connect: errors.Is and errors.As find both. The wait ends at
// once with the error of the attempt if no later one can succeed: the password is wrong (SQLSTATE
// 28P01, 28000), there is no such database (3D000), the role may not connect to it (42501), the pool
// is closed, or the server is unsafe for locks ([advisory.ErrUnsafeServer]).
//
// What may last or pass ends the wait only if the Locker has never had a session: a hot standby, which
// after a failover may be about to be promoted; a pool that is in use up to MaxOpenConns; and errors
// that only the driver knows, such as one about the connection string. [Locker.Ping] and tries return
// each error of an attempt.
func (l *Locker) Lock(ctx context.Context, key advisory.Key, opts ...advisory.LockerOption) (advisory.Lock, error) {
	return l.acquire(ctx, time.Now(), "lock", key, opts, false)
}

// acquire returns the lock, or one that holds nothing.
func (l *Locker) acquire(ctx context.Context, start time.Time, op string, key advisory.Key, opts []advisory.LockerOption, try bool) (*handle, error) {
	s, err := l.checkCall(ctx, opts, key)
	if err != nil {
		return noLock(key, s.Mode), lockfn.Error(op, key, s.Mode, err)
	}
	if try {
		s.MaxWait = nil // it is not for a try
	}
	limit, cancel := wait.Limit(ctx, s)
	defer cancel()
	r := &request{ctx: ctx, settings: s, once: try || wait.OneTry(s), done: make(chan struct{})}
	var h *handle
	if err = notUnder(ctx, key); err == nil {
		err = l.enter(r, key)
	}
	if err == nil {
		h, err = l.await(ctx, limit, r, start)
	}
	if try {
		l.setHolders(ctx, s, key, h != nil, err)
	} else {
		if h == nil && err == nil {
			err = l.notAcquired(ctx, key, s.Mode, start)
		}
		err = wait.Ended(ctx, limit, key, s.Mode, start, err)
	}
	err = lockfn.Error(op, key, s.Mode, err)
	l.observeEnd(ctx, s, key, h, start, err)
	if h == nil {
		return noLock(key, s.Mode), err
	}
	return h, nil
}

// enter has r queue for key.
func (l *Locker) enter(r *request, key advisory.Key) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusal == nil {
		l.gate(key).enqueue(r)
	}
	return l.refusal
}

// await waits for the answer to r, or for the end of limit. The caller's ctx does not
// reach the driver: a grant that comes later is undone.
func (l *Locker) await(ctx, limit context.Context, r *request, start time.Time) (*handle, error) {
	if !r.once {
		defer l.reportLong(ctx, r.gate.key, r.gate.key, r.settings, start)()
	}
	if l.awaitAnswer(limit, r); errors.Is(r.err, errLeft) {
		return nil, l.left(ctx, r, start)
	}
	return r.lock, r.err
}

// awaitAnswer returns when r is answered, at the latest when limit ends: then by errLeft.
func (l *Locker) awaitAnswer(limit context.Context, r *request) {
	select {
	case <-r.done:
	case <-limit.Done():
		l.mu.Lock()
		if !r.answered {
			r.answer(errLeft)
			r.gate.dequeue(r)
		}
		l.mu.Unlock()
	}
}

var errLeft = errors.New("the caller does not wait any more")

// left is the error of a caller that has left.
func (l *Locker) left(ctx context.Context, r *request, start time.Time) error {
	if r.once && ctx.Err() != nil {
		return l.whyUnchecked(bound.Cause(ctx))
	}
	l.mu.Lock()
	key := r.gate.key // which an answer that comes late may change
	l.mu.Unlock()
	return l.notAcquired(ctx, key, r.settings.Mode, start)
}
