package locker_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory/locktest"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/memlock"
	"github.com/pgadvisory/pgadvisory/locker"
)

// A world is a Locker, and what can happen to it.
type world struct {
	advisory.Locker
	key     advisory.Key                                               // of this test alone
	occupy  func(k advisory.Key, opts ...advisory.Option) func() error // another node takes k
	theirs  func(k advisory.Key) bool                                  // another node could take k exclusively
	lose    func(k advisory.Key)                                       // the sessions that hold k or wait for it end
	waiting func(n int)                                                // until n callers wait
	pause   func()                                                     // what is to happen has happened
	close   func() error
}

// The comments of advisory.Lock and advisory.Locker, line by line. Each check gets a
// world of its own.
var contract = map[string]func(t *testing.T, w *world){
	"Lock: Key and Mode are those of the call":                      keyAndMode,
	"Lock: Token grows with each hold":                              tokenGrows,
	"Lock: Context has the values of the acquiring ctx":             contextHasValues,
	"Lock: Context does not end with the acquiring ctx":             contextOutlivesCtx,
	"Lock: Context ends when the lock is lost":                      contextEndsWithLoss,
	"Lock: Context ends with Unlock":                                contextEndsWithUnlock,
	"Lock: Context ends when the Locker is closed":                  contextEndsWithClose,
	"Lock: Unlock releases":                                         unlockReleases,
	"Lock: a second Unlock is ErrNotHeld":                           secondUnlock,
	"Lock: Unlock after a loss is ErrLost":                          unlockAfterLoss,
	"Lock: Unlock after a loss harms no later holder":               unlockAfterLossHarmsNobody,
	"Lock: Unlock of two goroutines releases once":                  unlockRaces,
	"Lock: Downgrade lets readers in":                               downgradeLetsReadersIn,
	"Lock: Downgrade leaves no gap":                                 downgradeLeavesNoGap,
	"Lock: Downgrade of what is not held":                           downgradeOfNothing,
	"Lock: Downgrade whose ctx has ended changes nothing":           downgradeCancelled,
	"Lock: Unlock beside Downgrade leaves nothing":                  unlockBesideDowngrade,
	"Locker: who excludes whom":                                     whoExcludesWhom,
	"Locker: every key":                                             everyKey,
	"TryLock: contention is a false":                                tryIsFalse,
	"TryLock: the Lock is never nil":                                neverNil,
	"TryLock: a ctx that has ended is an error":                     tryWithEndedCtx,
	"Lock: waits for the release":                                   lockWaits,
	"Lock: ends with ctx":                                           lockEndsWithCtx,
	"Lock: ends with MaxWait":                                       lockEndsWithMaxWait,
	"Lock: MaxWait of 0 is one try":                                 lockOneTry,
	"Lock: a ctx that has ended ends the wait":                      lockWithEndedCtx,
	"Lock: a wait that ended holds nothing":                         endedWaitHoldsNothing,
	"Lock: first come, first served":                                firstComeFirstServed,
	"Lock: a reader does not overtake a writer that waits":          readerBehindWriter,
	"Lock: a writer that leaves lets the readers behind it in":      writerLeaves,
	"Lock: a wait outlives its session":                             waitOutlivesSession,
	"Lock: a reader that joins as the last one leaves has the lock": readerJoins,
	"Lock: the error names the holders":                             errorNamesHolders,
	"TryDo: runs fn or not":                                         tryDo,
	"Do: runs fn under the lock":                                    doRunsUnderTheLock,
	"Do: returns fn's error":                                        doReturnsError,
	"Do: fn's ctx ends with ctx":                                    doCtxEndsWithCtx,
	"Do: fn's ctx ends with the lock":                               doCtxEndsWithLock,
	"Do: a loss is told even if fn returns nil":                     doTellsLoss,
	"Do: fn's ctx ends with fn":                                     doCtxEndsWithFn,
	"Do: a wait that ends does not run fn":                          doWaitEnds,
	"Do: the lock is released after a panic":                        doPanics,
	"Do: the lock is released after Goexit":                         doGoexit,
	"Do: fn may release the lock itself":                            doReleasedByFn,
	"Do: the same key within is ErrAlreadyHeld":                     nested,
	"FromContext: the lock under which fn runs":                     fromContext,
	"MaxWait bounds the wait, not the work":                         maxWaitIsNotForWork,
	"HoldAtLeast puts off the release":                              holdsAtLeast,
	"Errors name the argument":                                      badArguments,
	"ErrClosed after Close":                                         afterClose,
	"Observer: a lock that is taken and released":                   observeHold,
	"Observer: a try in vain, a wait in vain":                       observeInVain,
	"Observer: a lock that is lost":                                 observeLoss,
	"Observer: Do":                                                  observeDo,
	"Observer: the mode after Downgrade":                            observeDowngrade,
	"Many at once never share what is exclusive":                    manyAtOnce,
}

func TestContractOfLocktest(t *testing.T) {
	for name, check := range contract {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { check(t, newLocktestWorld(t)) })
		})
	}
}

// The Locker of package inprocess is the same in memory, without tokens, and with the pid of its process.
func TestContractOfInprocess(t *testing.T) {
	for name, check := range contract {
		switch name {
		case "Lock: Token grows with each hold", "FromContext: the lock under which fn runs": // which compares tokens
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := &memlock.Locker{PID: os.Getpid(), NoTokens: true}
				check(t, newMemoryWorld(t, l))
			})
		})
	}
}

func newLocktestWorld(t *testing.T) *world {
	return newMemoryWorld(t, locktest.New())
}

// A memory is a Locker in memory.
type memory interface {
	advisory.Locker
	Occupy(key advisory.Key, opts ...advisory.Option) (release func())
	Lose(key advisory.Key)
	Close() error
}

func newMemoryWorld(t *testing.T, l memory) *world {
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return &world{
		Locker: l, key: harness.Key, lose: l.Lose, close: l.Close,
		occupy: func(k advisory.Key, opts ...advisory.Option) func() error {
			release := l.Occupy(k, opts...)
			return func() error { release(); return nil }
		},
		theirs: func(k advisory.Key) (free bool) {
			defer func() { free = recover() == nil }()
			l.Occupy(k)()
			return
		},
		waiting: func(int) { synctest.Wait() },
		pause:   synctest.Wait,
	}
}

func TestContractOfLocker(t *testing.T) {
	harness.EachDriverOfPools(t, func(t *testing.T, p *harness.Pool) {
		for i, name := range slices.Sorted(maps.Keys(contract)) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				contract[name](t, newLockerWorld(t, p, i))
			})
		}
	})
}

func TestTokenIsZeroWithoutFencing(t *testing.T) {
	harness.EachDriverOfPools(t, func(t *testing.T, p *harness.Pool) {
		l := p.Locker(t)
		for _, m := range harness.Modes {
			lock, _ := harness.LockerTry(t, l, harness.Key, m)
			if lock.Token() != 0 {
				t.Errorf("%d", lock.Token())
			}
			harness.Release(t, lock)
		}
	})
}

func newLockerWorld(t *testing.T, p *harness.Pool, i int) *world {
	name := fmt.Sprintf("world %d", i)
	l := p.Locker(t, locker.WithFencing(), locker.WithApplicationName(name), locker.WithHeartbeat(100*time.Millisecond))
	other := p.Locker(t)
	return &world{
		Locker: l, key: advisory.Int64(int64(i)), close: l.Close,
		occupy: func(k advisory.Key, opts ...advisory.Option) func() error {
			lock, ok := harness.LockerTry(t, other, k, harness.OptionsAs[advisory.LockerOption](opts)...)
			if !ok {
				t.Fatalf("%v is not free for the other node", k)
			}
			return lock.Unlock
		},
		theirs: func(k advisory.Key) bool {
			lock, ok := harness.LockerTry(t, other, k)
			if ok {
				harness.Release(t, lock)
			}
			return ok
		},
		lose: func(k advisory.Key) {
			n, _ := k.Int64()
			harness.DoSQL(t, p, fmt.Sprintf(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity JOIN pg_locks USING (pid)
				WHERE datname = current_database() AND application_name = '%s' AND locktype = 'advisory' AND (classid::int8 << 32 | objid::int8) = %d`, name, n))
		},
		waiting: func(n int) {
			t.Helper()
			harness.Eventually(t, fmt.Sprintf("%d wait", n), func() bool { return l.Stats().Waiting == n })
		},
		pause: func() { time.Sleep(50 * time.Millisecond) },
	}
}

// try takes k, or fails the test.
func (w *world) try(t *testing.T, k advisory.Key, opts ...advisory.LockerOption) advisory.Lock {
	t.Helper()
	lock, ok, err := w.TryLock(context.Background(), k, opts...)
	if !ok || err != nil {
		t.Fatalf("%v: got it: %v, %v", k, ok, err)
	}
	return lock
}

// isFree reports whether k can be had, and leaves it so. A wait that was given up may
// still be on its way out.
func (w *world) isFree(t *testing.T, k advisory.Key) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%v is free", k), func() bool {
		lock, ok, err := w.TryLock(context.Background(), k)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			harness.Release(t, lock)
		}
		return ok
	})
}

func (w *world) isTaken(t *testing.T, k advisory.Key, opts ...advisory.LockerOption) {
	t.Helper()
	lock, ok, err := w.TryLock(context.Background(), k, opts...)
	if err != nil {
		t.Error(err)
	}
	if ok {
		t.Errorf("%v is free", k)
		lock.Unlock()
	}
}

// lost takes k away from the Locker, and waits until lock is told and the key is free.
func (w *world) lost(t *testing.T, lock advisory.Lock) {
	t.Helper()
	w.lose(lock.Key())
	harness.Ended(t, lock.Context(), advisory.ErrLost)
	w.isFree(t, lock.Key())
}

// A result is what a call in the background comes to.
type result struct {
	lock advisory.Lock
	err  error
}

func (w *world) lockLater(ctx context.Context, opts ...advisory.LockerOption) <-chan result {
	c := make(chan result, 1)
	go func() {
		lock, err := w.Lock(ctx, w.key, opts...)
		c <- result{lock, err}
	}()
	return c
}

// granted waits for the lock of lockLater.
func granted(t *testing.T, c <-chan result) advisory.Lock {
	t.Helper()
	r := harness.Receive(t, c)
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.lock
}

func (w *world) stillWaits(t *testing.T, c <-chan result) {
	t.Helper()
	w.pause()
	select {
	case r := <-c:
		t.Fatalf("it does not wait: %v", r.err)
	default:
	}
}
