// Package inprocess has a Locker for an installation of one process, which needs no lock in the
// database. A configuration can choose it where others choose a *locker.Locker:
//
//	var locks advisory.Locker = locker.New(db)
//	if config.SingleProcess {
//		locks = inprocess.New()
//	}
//
// Its locks exclude the goroutines of the process, as those of a *locker.Locker do. They do not exclude
// any other process: a second replica, an old one during a rolling update, or a job that runs beside
// it. For these use package locker.
package inprocess

import (
	"context"
	"fmt"
	"os"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/memlock"
	"github.com/pgadvisory/pgadvisory/internal/settings"
)

// A Locker is an [advisory.Locker] in memory. Its calls return the errors of a *locker.Locker and send
// the same events. The differences are:
//
//   - Its locks are never lost, so their Contexts end only by Unlock or Close.
//   - Token is 0. A token must grow over restarts of the process too, and only a server can do that.
//   - The PID of events and of an [advisory.Holder] is that of this process.
//
// Two Lockers do not exclude each other, so make one and share it.
type Locker struct{ m memlock.Locker }

var _ advisory.Locker = (*Locker)(nil)

// New returns a Locker of which nobody holds anything. If the options are wrong, every call fails.
func New(opts ...advisory.ObserverOption) *Locker {
	l := &Locker{memlock.Locker{PID: os.Getpid(), NoTokens: true}}
	set := &l.m.Defaults
	if err := settings.Apply(opts, func(o advisory.ObserverOption) { o.ApplyNew(set) }); err != nil {
		l.m.Bad = fmt.Errorf("pgadvisory: inprocess.New: %w", err)
	} else if set.WaitingAfter < 0 {
		l.m.Bad = settings.NegativeWaitingAfter(set.WaitingAfter)
	} else {
		o, _ := set.Observer.(advisory.Observer)
		l.m.Bad = settings.CheckObserver(o)
	}
	return l
}

// TryLock makes one try and reports whether it took the lock. It does not wait.
func (l *Locker) TryLock(ctx context.Context, key advisory.Key, opts ...advisory.LockerOption) (advisory.Lock, bool, error) {
	return l.m.TryLock(ctx, key, opts...)
}

// Lock waits until it has the lock. Waiters get it in the order in which they came.
func (l *Locker) Lock(ctx context.Context, key advisory.Key, opts ...advisory.LockerOption) (advisory.Lock, error) {
	return l.m.Lock(ctx, key, opts...)
}

// TryDo runs fn under the lock if the key is free, and releases it. ran reports whether fn ran.
func (l *Locker) TryDo(ctx context.Context, key advisory.Key, fn func(ctx context.Context) error, opts ...advisory.LockerOption) (ran bool, err error) {
	return l.m.TryDo(ctx, key, fn, opts...)
}

// Do waits for the lock, runs fn under it and releases it.
func (l *Locker) Do(ctx context.Context, key advisory.Key, fn func(ctx context.Context) error, opts ...advisory.LockerOption) error {
	return l.m.Do(ctx, key, fn, opts...)
}

// Holds reports whether a goroutine of this process holds key by this Locker.
func (l *Locker) Holds(key advisory.Key) bool { return l.m.Holds(key) }

// Close ends the Locker. The Contexts of its locks end with [advisory.ErrClosed], and waits and later
// calls fail with it. Close waits for releases that locker.HoldAtLeast has delayed.
func (l *Locker) Close() error { return l.m.Close() }
