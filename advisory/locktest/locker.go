package locktest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/work"
)

// A Locker is an [advisory.Locker] in memory. It stands for the Locker of one process;
// code that is to be seen racing against itself shares one, and other processes are
// played by [Locker.Occupy].
//
// Each lock has a fencing token, which is greater than those before it. The zero Locker is
// ready for use.
type Locker struct {
	mu     sync.Mutex
	lines  map[advisory.Key]*line
	token  uint64
	nodes  int // that have occupied a key so far
	closed bool

	deferred sync.WaitGroup // releases that were put off
}

var _ advisory.Locker = (*Locker)(nil)

// New returns a Locker of which nobody holds anything.
func New() *Locker { return new(Locker) }

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

// Occupy has another node take key, exclusively or [advisory.Shared], until release is
// called, for which once is enough. A [advisory.Label] is what a
// [advisory.NotAcquiredError] shows as the Application of that [advisory.Holder].
//
// It is for a key that the other node can have: one that is held already in a way that
// excludes it is a mistake of the test, and a panic.
func (l *Locker) Occupy(key advisory.Key, opts ...advisory.Option) (release func()) {
	session := make([]advisory.LockerOption, len(opts))
	for i, o := range opts {
		session[i] = o
	}
	s, err := check(key, session)
	if err != nil {
		panic(fmt.Sprintf("locktest: Occupy(%v): %v", key, err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.line(key)
	for _, h := range n.holds {
		if excludes(h.mode, s.Mode) {
			who := "another node"
			if !h.other {
				who = "the Locker under test"
			}
			panic(fmt.Sprintf("locktest: Occupy(%v): %s holds it (%v)", key, who, h.mode))
		}
	}
	l.nodes++
	h := &hold{line: n, key: key, mode: s.Mode, settings: s, since: time.Now(), other: true, pid: ourPID + l.nodes}
	n.holds = append(n.holds, h)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		n.remove(h)
	}
}

// Lose takes key away from all who hold it by this Locker, as the end of its session
// would: their Contexts end with [advisory.ErrLost] before it returns. Other nodes keep
// what they have. Whoever waits for the key is next.
func (l *Locker) Lose(key advisory.Key) {
	// As in earnest, it takes errors.Is to tell.
	cause := fmt.Errorf("%w: the test says so", advisory.ErrLost)
	l.mu.Lock()
	lost := l.ours(key)
	now := time.Now()
	for _, h := range lost {
		h.end(cause)
	}
	l.mu.Unlock()
	for _, h := range lost {
		h.observe(advisory.Event{Kind: advisory.Lost, Held: now.Sub(h.since), Err: cause})
	}
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
