package advisory

import (
	"context"
	"errors"
	"sync"

	"github.com/pgadvisory/pgadvisory/internal/under"
)

// A Lock is a lock that is held. Several goroutines may call its methods at once.
type Lock interface {
	// Key returns the key of the lock.
	Key() Key
	// Mode returns the mode in which the lock is held.
	Mode() Mode

	// Token returns the fencing token of this hold, or 0 if fencing is off. It is greater than
	// those of all earlier holds of the key. It may exceed the integers of a float64 or an int64.
	Token() uint64

	// Context returns a context with the values of the ctx that acquired the lock, but not its
	// cancellation. It ends in three cases: the lock is lost (cause [ErrLost]), it is unlocked,
	// or its Locker is closed (cause [ErrClosed]).
	Context() context.Context

	// Unlock releases the lock, in bounded time. A second Unlock returns [ErrNotHeld], so a
	// deferred Unlock after an explicit one is harmless. After a loss Unlock returns [ErrLost].
	Unlock() error

	// Downgrade turns an exclusive lock into a shared one, so that Mode returns Shared. The key
	// is not free at any moment in between.
	Downgrade(ctx context.Context) error
}

// A Locker takes locks. Application code can depend on this interface: *locker.Locker implements it,
// and so does *locktest.Locker, for unit tests without a database.
//
// A Try method that finds the lock taken returns false, not an error.
type Locker interface {
	// TryLock makes one try and reports whether it took the lock. The Lock is never nil: if the
	// lock was not taken, its Unlock returns [ErrNotHeld].
	TryLock(ctx context.Context, key Key, opts ...LockerOption) (Lock, bool, error)
	// Lock waits until it has the lock. If ctx or MaxWait ends first, it returns a
	// [*NotAcquiredError].
	Lock(ctx context.Context, key Key, opts ...LockerOption) (Lock, error)
	// TryDo makes one try. If it takes the lock, it runs fn and releases the lock. ran reports
	// whether fn ran.
	TryDo(ctx context.Context, key Key, fn func(ctx context.Context) error, opts ...LockerOption) (ran bool, err error)
	// Do waits for the lock, runs fn and releases the lock. fn's ctx ends with ctx or with the
	// lock. If the lock is lost while fn runs, the error is [ErrLost] even if fn returned nil.
	Do(ctx context.Context, key Key, fn func(ctx context.Context) error, opts ...LockerOption) error
}

// Locks are locks that were taken together.
type Locks []Lock

// Context returns a context that ends as soon as the Context of any of the locks does, with the same
// cause. It has the values of the first lock's Context. For no locks it is [context.Background].
//
// Each call registers callbacks that stay until the locks end, so call it once for each piece of
// work.
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

// Unlock releases all the locks at once, so that it takes no longer than the slowest of them. It
// returns their errors, joined.
func (ls Locks) Unlock() error {
	errs := make([]error, len(ls))
	var wg sync.WaitGroup
	for i, l := range ls {
		wg.Go(func() { errs[i] = l.Unlock() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// FromContext returns the lock under which fn runs, inside Do and TryDo of a [Locker]. If they are
// nested it returns the innermost lock. Outside of them it returns false.
func FromContext(ctx context.Context) (Lock, bool) {
	l, ok := under.Lock(ctx).(Lock)
	return l, ok
}
