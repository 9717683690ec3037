package adapt

import (
	"context"
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/given"
)

// Wrap returns a job function that runs fn under the lock of key. It fails with an error that is
// [advisory.ErrNotAcquired], and does not call fn, if the key is not free at once, or within
// [advisory.MaxWait]. fn's ctx ends with the job's ctx and with the lock; if the lock is lost
// meanwhile, the job's error is [advisory.ErrLost].
//
// It is the Wrap of a locker.Locker for code that has an [advisory.Locker]. It panics if l is nil.
func Wrap(l advisory.Locker, key advisory.Key, fn func(ctx context.Context) error, opts ...advisory.LockerOption) func(ctx context.Context) error {
	mustHave(l, "Wrap")
	opts = orOneTry(opts)
	return func(ctx context.Context) error { return l.Do(ctx, key, fn, opts...) }
}

// orOneTry makes the wait one try, unless opts say how long it is: of two options of a kind the
// last counts.
func orOneTry(opts []advisory.LockerOption) []advisory.LockerOption {
	return append([]advisory.LockerOption{advisory.MaxWait(0)}, opts...)
}

// mustHave panics if l is nil. As an error of each run it would go unseen: schedulers take it for
// "not my turn".
func mustHave(l any, function string) {
	if given.IsNil(l) {
		panic(fmt.Sprintf("pgadvisory: adapt.%s: the Locker is nil", function))
	}
}

// as returns v as the tool's interface type. It panics if v does not implement it, or T is no
// interface.
func as[T any](v any, function string) T {
	t, ok := v.(T)
	if !ok {
		panic(fmt.Sprintf("pgadvisory: adapt.%s: its type argument is an interface that %T does not implement", function, v))
	}
	return t
}
