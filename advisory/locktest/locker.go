package locktest

import (
	"context"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/memlock"
)

// A Locker is an [advisory.Locker] in memory. It stands for the Locker of one process;
// code that is to be seen racing against itself shares one, and other processes are
// played by [Locker.Occupy].
//
// Each lock has a fencing token, which is greater than those before it. The zero Locker is
// ready for use.
type Locker struct{ m memlock.Locker }

var _ advisory.Locker = (*Locker)(nil)

// New returns a Locker of which nobody holds anything.
func New() *Locker { return new(Locker) }

// TryLock makes one try.
func (l *Locker) TryLock(ctx context.Context, key advisory.Key, opts ...advisory.LockerOption) (advisory.Lock, bool, error) {
	return l.m.TryLock(ctx, key, opts...)
}

// Lock waits until it has the lock.
func (l *Locker) Lock(ctx context.Context, key advisory.Key, opts ...advisory.LockerOption) (advisory.Lock, error) {
	return l.m.Lock(ctx, key, opts...)
}

// TryDo runs fn under the lock if the key is free.
func (l *Locker) TryDo(ctx context.Context, key advisory.Key, fn func(ctx context.Context) error, opts ...advisory.LockerOption) (ran bool, err error) {
	return l.m.TryDo(ctx, key, fn, opts...)
}

// Do waits for the lock and runs fn under it.
func (l *Locker) Do(ctx context.Context, key advisory.Key, fn func(ctx context.Context) error, opts ...advisory.LockerOption) error {
	return l.m.Do(ctx, key, fn, opts...)
}

// Occupy has another node take key, exclusively or [advisory.Shared], until release is
// called, for which once is enough. A [advisory.Label] is what a
// [advisory.NotAcquiredError] shows as the Application of that [advisory.Holder].
//
// It is for a key that the other node can have: one that is held already in a way that
// excludes it is a mistake of the test, and a panic.
func (l *Locker) Occupy(key advisory.Key, opts ...advisory.Option) (release func()) {
	return l.m.Occupy(key, opts...)
}

// Lose takes key away from all who hold it by this Locker, as the end of its session
// would: their Contexts end with [advisory.ErrLost] before it returns. Other nodes keep
// what they have. Whoever waits for the key is next.
func (l *Locker) Lose(key advisory.Key) { l.m.Lose(key) }

// Holds reports whether this Locker holds key.
func (l *Locker) Holds(key advisory.Key) bool { return l.m.Holds(key) }

// Close ends the Locker: the Contexts of its locks end with [advisory.ErrClosed], which is
// also what those get who wait, or come later. It waits for releases that
// locker.HoldAtLeast has put off.
func (l *Locker) Close() error { return l.m.Close() }
