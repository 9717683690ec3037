package advisory

import (
	"context"
	"errors"
	"sync"

	"github.com/pgadvisory/pgadvisory/internal/under"
)

// A Lock is a lock that is held. Any goroutine may call its methods.
type Lock interface {
	Key() Key
	Mode() Mode

	// Token is the fencing token of this hold, or 0 where fencing is off.
	Token() uint64

	// Context keeps the values of the ctx with which the lock was acquired,
	// but not its end. It ends when the lock is lost, with cause [ErrLost];
	// when it is unlocked; or when its Locker is closed, with cause [ErrClosed].
	Context() context.Context

	// Unlock releases the lock, in bounded time. A second Unlock returns
	// [ErrNotHeld], so that a deferred one does no harm; after a loss Unlock
	// returns [ErrLost].
	Unlock() error

	// Downgrade turns an exclusive lock into a shared one: Mode is Shared from
	// then on. At no moment between the two is the key free.
	Downgrade(ctx context.Context) error
}

// A Locker takes locks. Application code may depend on it; *locker.Locker is
// one, and *locktest.Locker is one for unit tests without a database.
//
// Contention is never an error of a Try method: it is a false.
type Locker interface {
	// TryLock makes one try. The Lock is never nil: without the lock, its
	// Unlock is [ErrNotHeld].
	TryLock(ctx context.Context, key Key, opts ...LockerOption) (Lock, bool, error)
	// Lock waits until it has the lock, or ctx or MaxWait ends: then the error
	// is a [*NotAcquiredError].
	Lock(ctx context.Context, key Key, opts ...LockerOption) (Lock, error)
	// TryDo runs fn under the lock if the lock is free at once.
	TryDo(ctx context.Context, key Key, fn func(ctx context.Context) error, opts ...LockerOption) (ran bool, err error)
	// Do waits for the lock and runs fn under it. fn's ctx ends with ctx or
	// with the lock. If the lock is lost meanwhile, the error is [ErrLost] even
	// where fn returned nil.
	Do(ctx context.Context, key Key, fn func(ctx context.Context) error, opts ...LockerOption) error
}

// Locks are locks that were taken together.
type Locks []Lock

// Context returns a Context that ends as soon as the Context of any of the
// locks does, with its cause. It keeps the values of the first. Of no locks it
// is [context.Background].
//
// Each call adds something to the locks that stays until they end, so call it
// once for one piece of work.
func (ls Locks) Context() context.Context {
	if len(ls) == 0 {
		return context.Background()
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ls[0].Context()))
	endWith := func(each context.Context) { cancel(context.Cause(each)) }
	for _, l := range ls {
		each := l.Context()
		stop := context.AfterFunc(each, func() { endWith(each) })
		context.AfterFunc(ctx, func() { stop() })
		if each.Err() != nil {
			endWith(each) // now, not when the AfterFunc gets to run
		}
	}
	return ctx
}

// Unlock releases them all at once, so that it takes no longer than the slowest
// of them, and joins the errors.
func (ls Locks) Unlock() error {
	errs := make([]error, len(ls))
	var wg sync.WaitGroup
	for i, l := range ls {
		wg.Go(func() { errs[i] = l.Unlock() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// FromContext returns the lock under which fn runs, inside Do and TryDo of a
// [Locker]; of several the innermost.
func FromContext(ctx context.Context) (Lock, bool) {
	l, ok := under.Lock(ctx).(Lock)
	return l, ok
}
