// Package memlock is a Locker in memory. Packages locktest and inprocess give it to users.
//
// All of its time passes in timers, and it starts no goroutine that waits, so it works in a bubble of
// testing/synctest.
package memlock

import (
	"context"
	"sync"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/option"
	"github.com/pgadvisory/pgadvisory/internal/work"
)

// A Locker is an [advisory.Locker] in memory. The zero Locker is ready for use.
type Locker struct {
	PID      int           // of the process that holds its locks; 0 stands for 1
	NoTokens bool          // Token is 0
	Defaults option.Locker // for calls without an Observer, or WithWaitingAfter
	Bad      error         // each call fails with it, if not nil

	mu     sync.Mutex
	lines  map[advisory.Key]*line
	token  uint64
	nodes  int // that have occupied a key so far
	closed bool

	deferred sync.WaitGroup // releases that were put off
}

// TryLock makes one try.
func (l *Locker) TryLock(ctx context.Context, key advisory.Key, opts ...advisory.LockerOption) (advisory.Lock, bool, error) {
	h, err := l.acquire(ctx, "try lock", key, opts, true)
	return h, h.line != nil, err
}

// Lock waits until it has the lock.
func (l *Locker) Lock(ctx context.Context, key advisory.Key, opts ...advisory.LockerOption) (advisory.Lock, error) {
	return l.acquire(ctx, "lock", key, opts, false)
}

// TryDo runs fn under the lock if the key is free.
func (l *Locker) TryDo(ctx context.Context, key advisory.Key, fn func(ctx context.Context) error, opts ...advisory.LockerOption) (ran bool, err error) {
	if fn == nil {
		return false, lockfn.Error("try lock", key, advisory.Exclusive, work.ErrNilFn)
	}
	h, err := l.acquire(ctx, "try lock", key, opts, true)
	if h.line == nil {
		return false, err
	}
	return true, h.do(ctx, fn)
}

// Do waits for the lock and runs fn under it.
func (l *Locker) Do(ctx context.Context, key advisory.Key, fn func(ctx context.Context) error, opts ...advisory.LockerOption) error {
	if fn == nil {
		return lockfn.Error("lock", key, advisory.Exclusive, work.ErrNilFn)
	}
	h, err := l.acquire(ctx, "lock", key, opts, false)
	if h.line == nil {
		return err
	}
	return h.do(ctx, fn)
}

// Holds reports whether this Locker holds key.
func (l *Locker) Holds(key advisory.Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.ours(key)) > 0
}

// ours returns the holds of key that are not another node's. The mutex is held.
func (l *Locker) ours(key advisory.Key) (hs []*hold) {
	if n := l.lines[key]; n != nil {
		for _, h := range n.holds {
			if !h.other {
				hs = append(hs, h)
			}
		}
	}
	return hs
}

// Close ends the Locker: the Contexts of its locks end with [advisory.ErrClosed], which is
// also what those get who wait, or come later. It waits for releases that
// locker.HoldAtLeast has put off.
func (l *Locker) Close() error {
	l.mu.Lock()
	l.closed = true
	for _, n := range l.lines {
		queue := n.queue
		n.queue = nil
		for _, w := range queue {
			w.settle(advisory.ErrClosed)
		}
	}
	l.mu.Unlock()
	l.deferred.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.lines {
		for _, h := range l.ours(key) {
			h.end(advisory.ErrClosed)
		}
	}
	return nil
}
