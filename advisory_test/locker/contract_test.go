package locker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory/locktest"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
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

func newLocktestWorld(t *testing.T) *world {
	l := locktest.New()
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

func keyAndMode(t *testing.T, w *world) {
	for _, m := range harness.Modes {
		lock := w.try(t, w.key, m)
		if lock.Key() != w.key || lock.Mode() != m {
			t.Errorf("%v %v", lock.Key(), lock.Mode())
		}
		harness.Release(t, lock)
		if lock.Key() != w.key || lock.Mode() != m {
			t.Errorf("%v %v after Unlock", lock.Key(), lock.Mode())
		}
	}
}

func tokenGrows(t *testing.T, w *world) {
	var last uint64
	grows := func(lock advisory.Lock) {
		t.Helper()
		if lock.Token() <= last {
			t.Errorf("token %d after %d", lock.Token(), last)
		}
		last = lock.Token()
	}
	for range 3 { // one after the other
		lock := w.try(t, w.key)
		grows(lock)
		harness.Release(t, lock)
	}
	a := w.try(t, w.key) // handed over
	c := w.lockLater(t.Context())
	w.waiting(1)
	grows(a)
	harness.Release(t, a)
	b := granted(t, c)
	grows(b)
	harness.Release(t, b)
	for _, reader := range []advisory.Lock{w.try(t, w.key, advisory.Shared), w.try(t, w.key, advisory.Shared)} {
		grows(reader)
		defer reader.Unlock()
	}
	if lock, _, _ := w.TryLock(t.Context(), w.key); lock.Token() != 0 {
		t.Errorf("token %d without the lock", lock.Token())
	}
}

func contextHasValues(t *testing.T, w *world) {
	lock, err := w.Lock(context.WithValue(t.Context(), harness.Word{}, "here"), w.key)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	if v := lock.Context().Value(harness.Word{}); v != "here" {
		t.Errorf("%v", v)
	}
}

func contextOutlivesCtx(t *testing.T, w *world) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	lock, err := w.Lock(ctx, w.key)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	w.pause()
	if lock.Context().Err() != nil {
		t.Error("it has ended with ctx")
	}
	if _, ok := lock.Context().Deadline(); ok {
		t.Error("it has the deadline of ctx")
	}
	w.isTaken(t, w.key)
	harness.Release(t, lock)
	w.isFree(t, w.key)
}

func contextEndsWithLoss(t *testing.T, w *world) {
	for _, m := range harness.Modes {
		lock := w.try(t, w.key, m)
		if lock.Context().Err() != nil {
			t.Error("it ended early")
		}
		w.lost(t, lock)
		lock.Unlock()
	}
	w.isFree(t, w.key)
}

func contextEndsWithUnlock(t *testing.T, w *world) {
	lock := w.try(t, w.key)
	harness.Release(t, lock)
	if lock.Context().Err() == nil {
		t.Error("it has not ended")
	}
	harness.IsErr(t, context.Cause(lock.Context()), context.Canceled)
}

func contextEndsWithClose(t *testing.T, w *world) {
	lock := w.try(t, w.key)
	if err := w.close(); err != nil {
		t.Error(err)
	}
	harness.Ended(t, lock.Context(), advisory.ErrClosed)
	harness.IsErr(t, lock.Unlock(), advisory.ErrClosed)
	harness.IsErr(t, lock.Unlock(), advisory.ErrNotHeld)
}

func unlockReleases(t *testing.T, w *world) {
	lock := w.try(t, w.key)
	w.isTaken(t, w.key)
	harness.Release(t, lock)
	if err := w.occupy(w.key)(); err != nil { // at once
		t.Error(err)
	}
	a, b := w.try(t, w.key, advisory.Shared), w.try(t, w.key, advisory.Shared)
	harness.Release(t, a)
	w.isTaken(t, w.key)
	harness.Release(t, b)
	if err := w.occupy(w.key)(); err != nil {
		t.Error(err)
	}
}

func secondUnlock(t *testing.T, w *world) {
	lock := w.try(t, w.key)
	harness.Release(t, lock)
	next := w.try(t, w.key)
	err := lock.Unlock()
	harness.IsErr(t, err, advisory.ErrNotHeld)
	if err == nil || !strings.Contains(err.Error(), w.key.String()) {
		t.Errorf("%v does not name the key", err)
	}
	w.isTaken(t, w.key)
	if next.Context().Err() != nil {
		t.Error("the next holder's Context has ended")
	}
	harness.Release(t, next)
}

func unlockAfterLoss(t *testing.T, w *world) {
	lock := w.try(t, w.key)
	w.lost(t, lock)
	harness.IsErr(t, lock.Unlock(), advisory.ErrLost)
	harness.IsErr(t, lock.Unlock(), advisory.ErrNotHeld)
}

func unlockAfterLossHarmsNobody(t *testing.T, w *world) {
	lost := w.try(t, w.key)
	w.lost(t, lost)
	next := w.try(t, w.key)
	harness.IsErr(t, lost.Unlock(), advisory.ErrLost)
	w.isTaken(t, w.key)
	if next.Context().Err() != nil {
		t.Error("the next holder's Context has ended")
	}
	harness.Release(t, next)
	leave := w.occupy(w.key)
	harness.IsErr(t, lost.Unlock(), advisory.ErrNotHeld)
	w.isTaken(t, w.key)
	if err := leave(); err != nil {
		t.Error(err)
	}
}

func unlockRaces(t *testing.T, w *world) {
	lock := w.try(t, w.key)
	var released atomic.Int64
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			err := lock.Unlock()
			if err == nil {
				released.Add(1)
				return
			}
			harness.IsErr(t, err, advisory.ErrNotHeld)
		})
	}
	wg.Wait()
	if n := released.Load(); n != 1 {
		t.Errorf("released %d times", n)
	}
	w.isFree(t, w.key)
}

func downgradeLetsReadersIn(t *testing.T, w *world) {
	lock := w.try(t, w.key)
	token := lock.Token()
	w.isTaken(t, w.key, advisory.Shared)
	reader := w.lockLater(t.Context(), advisory.Shared)
	w.waiting(1)
	if err := lock.Downgrade(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lock.Mode() != advisory.Shared || lock.Token() != token || lock.Context().Err() != nil {
		t.Errorf("%v, token %d after %d, %v", lock.Mode(), lock.Token(), token, lock.Context().Err())
	}
	second := granted(t, reader)
	leave := w.occupy(w.key, advisory.Shared)
	w.isTaken(t, w.key)
	if err := lock.Downgrade(t.Context()); err != nil {
		t.Errorf("of a shared one: %v", err)
	}
	harness.Release(t, lock)
	harness.Release(t, second)
	if err := leave(); err != nil {
		t.Error(err)
	}
	w.isFree(t, w.key)
}

func downgradeLeavesNoGap(t *testing.T, w *world) {
	lock := w.try(t, w.key)
	writer := w.lockLater(t.Context())
	w.waiting(1)
	if err := lock.Downgrade(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.stillWaits(t, writer)
	harness.Release(t, lock)
	harness.Release(t, granted(t, writer))
}

func downgradeOfNothing(t *testing.T, w *world) {
	released := w.try(t, w.key)
	harness.Release(t, released)
	harness.IsErr(t, released.Downgrade(t.Context()), advisory.ErrNotHeld)
	leave := w.occupy(w.key)
	none, _, _ := w.TryLock(t.Context(), w.key)
	harness.IsErr(t, none.Downgrade(t.Context()), advisory.ErrNotHeld)
	leave()
	lost := w.try(t, w.key)
	w.lost(t, lost)
	harness.IsErr(t, lost.Downgrade(t.Context()), advisory.ErrLost)
	lost.Unlock()
}

func downgradeCancelled(t *testing.T, w *world) {
	lock := w.try(t, w.key)
	harness.IsErr(t, lock.Downgrade(harness.Cancelled(t)), context.Canceled)
	if lock.Mode() != advisory.Exclusive {
		t.Error(lock.Mode())
	}
	w.isTaken(t, w.key, advisory.Shared)
	harness.Release(t, lock)
	w.isFree(t, w.key)
}

func unlockBesideDowngrade(t *testing.T, w *world) {
	for range 20 {
		lock := w.try(t, w.key)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := lock.Downgrade(t.Context()); err != nil && !errors.Is(err, advisory.ErrNotHeld) {
				t.Error(err)
			}
		})
		wg.Go(func() {
			runtime.Gosched()
			harness.Release(t, lock)
		})
		wg.Wait()
		if err := w.occupy(w.key)(); err != nil {
			t.Error(err)
		}
	}
}

func whoExcludesWhom(t *testing.T, w *world) {
	for _, m := range harness.Modes {
		for _, m2 := range harness.Modes {
			want := m == advisory.Shared && m2 == advisory.Shared
			for _, by := range []string{"this Locker", "another node"} {
				var leave func() error
				if by == "this Locker" {
					leave = w.try(t, w.key, m).Unlock
				} else {
					leave = w.occupy(w.key, m)
				}
				lock, got, err := w.TryLock(t.Context(), w.key, m2)
				if got != want || err != nil {
					t.Errorf("%v beside %v of %s: %v, %v", m2, m, by, got, err)
				}
				if got {
					harness.Release(t, lock)
				}
				if err := leave(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func everyKey(t *testing.T, w *world) {
	if w.key != harness.Key && w.key != advisory.Int64(0) {
		w.isFree(t, w.key) // other checks run beside this one, on keys of their own
	}
	n, _ := w.key.Int64()
	class := int32(n) + 1000
	var locks []advisory.Lock
	for _, k := range []advisory.Key{
		w.key, advisory.Int64(-1000 - n), advisory.Int64(1<<40 + n), advisory.Pair(class, 0), advisory.Pair(class, -1), advisory.Pair(-class, 0),
		advisory.Int64(int64(class) << 32), // the bits of a pair
	} {
		locks = append(locks, w.try(t, k))
	}
	for _, lock := range locks {
		w.isTaken(t, lock.Key())
		harness.Release(t, lock)
		w.isFree(t, lock.Key())
	}
}

func tryIsFalse(t *testing.T, w *world) {
	inVain := func() {
		t.Helper()
		for _, m := range harness.Modes {
			if _, ok, err := w.TryLock(t.Context(), w.key, m, advisory.MaxWait(time.Hour)); ok || err != nil {
				t.Errorf("TryLock: %v, %v", ok, err)
			}
			ran, err := w.TryDo(t.Context(), w.key, func(context.Context) error { t.Error("it runs"); return nil }, m)
			if ran || err != nil {
				t.Errorf("TryDo: %v, %v", ran, err)
			}
		}
	}
	lock := w.try(t, w.key)
	inVain()
	harness.Release(t, lock)
	leave := w.occupy(w.key)
	inVain()
	leave()
	w.isFree(t, w.key)
}

func neverNil(t *testing.T, w *world) {
	leave := w.occupy(w.key)
	none := map[string]func() (advisory.Lock, error){
		"TryLock in vain": func() (advisory.Lock, error) {
			l, _, err := w.TryLock(t.Context(), w.key, advisory.Shared)
			return l, err
		},
		"Lock in vain": func() (advisory.Lock, error) {
			return w.Lock(t.Context(), w.key, advisory.Shared, advisory.MaxWait(time.Millisecond))
		},
		"TryLock, ctx has ended": func() (advisory.Lock, error) {
			l, _, err := w.TryLock(harness.Cancelled(t), w.key, advisory.Shared)
			return l, err
		},
		"Lock, ctx has ended": func() (advisory.Lock, error) { return w.Lock(harness.Cancelled(t), w.key, advisory.Shared) },
		"TryLock with a nil option": func() (advisory.Lock, error) {
			l, _, err := w.TryLock(t.Context(), w.key, advisory.Shared, nil)
			return l, err
		},
		"Lock with a nil option": func() (advisory.Lock, error) { return w.Lock(t.Context(), w.key, advisory.Shared, nil) },
	}
	closed := map[string]func() (advisory.Lock, error){
		"TryLock after Close": func() (advisory.Lock, error) {
			l, _, err := w.TryLock(t.Context(), w.key, advisory.Shared)
			return l, err
		},
		"Lock after Close": func() (advisory.Lock, error) { return w.Lock(t.Context(), w.key, advisory.Shared) },
	}
	check := func(calls map[string]func() (advisory.Lock, error)) {
		for name, call := range calls {
			lock, err := call()
			if lock == nil {
				t.Fatalf("%s: nil", name)
			}
			if err == nil && name != "TryLock in vain" {
				t.Errorf("%s: no error", name)
			}
			if lock.Key() != w.key || lock.Mode() != advisory.Shared || lock.Token() != 0 || lock.Context().Err() == nil {
				t.Errorf("%s: %v %v %d %v", name, lock.Key(), lock.Mode(), lock.Token(), lock.Context().Err())
			}
			harness.IsErr(t, context.Cause(lock.Context()), advisory.ErrNotHeld)
			harness.IsErr(t, lock.Unlock(), advisory.ErrNotHeld)
			harness.IsErr(t, lock.Downgrade(t.Context()), advisory.ErrNotHeld)
		}
	}
	check(none)
	leave()
	w.close()
	check(closed)
}

func tryWithEndedCtx(t *testing.T, w *world) {
	reason := errors.New("reason")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	_, ok, err := w.TryLock(ctx, w.key)
	if ok {
		t.Error("got it")
	}
	harness.IsErr(t, err, context.Canceled, reason)
	if errors.Is(err, advisory.ErrNotAcquired) {
		t.Errorf("%v: a try tells of no contention", err)
	}
	ran, err := w.TryDo(ctx, w.key, func(context.Context) error { return nil })
	if ran {
		t.Error("it ran")
	}
	harness.IsErr(t, err, context.Canceled, reason)
	w.isFree(t, w.key)
}

func lockWaits(t *testing.T, w *world) {
	lock := w.try(t, w.key)
	c := w.lockLater(t.Context())
	w.waiting(1)
	w.stillWaits(t, c)
	harness.Release(t, lock)
	harness.Release(t, granted(t, c))

	leave := w.occupy(w.key)
	c = w.lockLater(t.Context(), advisory.MaxWait(time.Hour))
	w.waiting(1)
	w.stillWaits(t, c)
	if err := leave(); err != nil {
		t.Error(err)
	}
	harness.Release(t, granted(t, c))
}

// inVain checks the error of a wait that ended.
func inVain(t *testing.T, w *world, err error, m advisory.Mode, atLeast time.Duration) *advisory.NotAcquiredError {
	t.Helper()
	harness.IsErr(t, err, advisory.ErrNotAcquired)
	var na *advisory.NotAcquiredError
	if !errors.As(err, &na) {
		t.Fatalf("%T: %v", err, err)
	}
	if na.Key != w.key || na.Mode != m || na.Waited < atLeast {
		t.Errorf("%v", na)
	}
	return na
}

func lockEndsWithCtx(t *testing.T, w *world) {
	leave := w.occupy(w.key)
	reason := errors.New("reason")
	ctx, cancel := context.WithCancelCause(t.Context())
	c := w.lockLater(ctx, advisory.MaxWait(time.Hour))
	w.waiting(1)
	cancel(reason)
	err := harness.Receive(t, c).err
	inVain(t, w, err, advisory.Exclusive, 0)
	harness.IsErr(t, err, context.Canceled, reason)

	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	_, err = w.Lock(ctx, w.key, advisory.Shared)
	inVain(t, w, err, advisory.Shared, 50*time.Millisecond)
	harness.IsErr(t, err, context.DeadlineExceeded)
	leave()
}

func lockEndsWithMaxWait(t *testing.T, w *world) {
	leave := w.occupy(w.key)
	_, err := w.Lock(t.Context(), w.key, advisory.MaxWait(50*time.Millisecond))
	na := inVain(t, w, err, advisory.Exclusive, 50*time.Millisecond)
	if errors.Is(err, context.DeadlineExceeded) || na.Cause != nil {
		t.Errorf("%v: it was not ctx", err)
	}
	leave()
}

func lockOneTry(t *testing.T, w *world) {
	lock, err := w.Lock(t.Context(), w.key, advisory.MaxWait(0))
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Lock(t.Context(), w.key, advisory.MaxWait(0))
	inVain(t, w, err, advisory.Exclusive, 0)
	harness.Release(t, lock)
	leave := w.occupy(w.key)
	_, err = w.Lock(t.Context(), w.key, advisory.MaxWait(0))
	inVain(t, w, err, advisory.Exclusive, 0)
	leave()
}

func lockWithEndedCtx(t *testing.T, w *world) {
	for _, opts := range [][]advisory.LockerOption{nil, {advisory.MaxWait(0)}, {advisory.MaxWait(time.Hour)}} {
		_, err := w.Lock(harness.Cancelled(t), w.key, opts...)
		inVain(t, w, err, advisory.Exclusive, 0)
		harness.IsErr(t, err, context.Canceled)
		err = w.Do(harness.Cancelled(t), w.key, func(context.Context) error { t.Error("it runs"); return nil }, opts...)
		inVain(t, w, err, advisory.Exclusive, 0)
		harness.IsErr(t, err, context.Canceled)
	}
	w.isFree(t, w.key)
}

func endedWaitHoldsNothing(t *testing.T, w *world) {
	for _, holder := range []func() func() error{
		func() func() error { return w.try(t, w.key).Unlock },
		func() func() error { return w.occupy(w.key) },
	} {
		leave := holder()
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			c := w.lockLater(ctx)
			w.waiting(1)
			cancel()
			harness.IsErr(t, harness.Receive(t, c).err, advisory.ErrNotAcquired)
		}
		if err := leave(); err != nil {
			t.Error(err)
		}
		w.isFree(t, w.key)
	}
}

func firstComeFirstServed(t *testing.T, w *world) {
	lock := w.try(t, w.key)
	const n = 5
	var order []int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			lock, err := w.Lock(context.Background(), w.key)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			harness.Release(t, lock)
		})
		w.waiting(i + 1)
	}
	w.isTaken(t, w.key)
	harness.Release(t, lock)
	wg.Wait()
	if !slices.IsSorted(order) || len(order) != n {
		t.Errorf("%v", order)
	}
}

func readerBehindWriter(t *testing.T, w *world) {
	reader := w.try(t, w.key, advisory.Shared)
	writer := w.lockLater(t.Context())
	w.waiting(1)
	w.isTaken(t, w.key, advisory.Shared) // nor does a try
	late := w.lockLater(t.Context(), advisory.Shared)
	w.waiting(2)
	w.stillWaits(t, late)
	harness.Release(t, reader)
	lock := granted(t, writer)
	w.stillWaits(t, late)
	harness.Release(t, lock)
	harness.Release(t, granted(t, late))
}

func writerLeaves(t *testing.T, w *world) {
	reader := w.try(t, w.key, advisory.Shared)
	ctx, cancel := context.WithCancel(t.Context())
	writer := w.lockLater(ctx)
	w.waiting(1)
	a, b := w.lockLater(t.Context(), advisory.Shared), w.lockLater(t.Context(), advisory.Shared)
	w.waiting(3)
	cancel()
	harness.IsErr(t, harness.Receive(t, writer).err, context.Canceled)
	harness.Release(t, granted(t, a))
	harness.Release(t, granted(t, b))
	harness.Release(t, reader)
}

func waitOutlivesSession(t *testing.T, w *world) {
	leave := w.occupy(w.key)
	c := w.lockLater(t.Context())
	w.waiting(1)
	for range 3 {
		w.pause()
		w.lose(w.key)
		w.stillWaits(t, c)
	}
	w.waiting(1)
	if err := leave(); err != nil {
		t.Error(err)
	}
	harness.Release(t, granted(t, c))
	w.isFree(t, w.key)
}

func readerJoins(t *testing.T, w *world) {
	for i := range 20 {
		last := w.try(t, w.key, advisory.Shared)
		time.Sleep(60 * time.Millisecond) // a Locker is not to hand it over any more
		ctx, cancel := context.WithCancel(t.Context())
		joins := w.lockLater(ctx, advisory.Shared)
		if i%5 == 4 {
			go cancel() // or does not
		}
		time.Sleep(time.Duration(i) * 20 * time.Microsecond)
		harness.Release(t, last)
		if r := harness.Receive(t, joins); r.err == nil {
			if w.theirs(w.key) {
				t.Fatal("it is free while a reader has it")
			}
			harness.Release(t, r.lock)
		} else {
			harness.IsErr(t, r.err, context.Canceled)
		}
		cancel()
		harness.Eventually(t, "it is free", func() bool { return w.theirs(w.key) })
	}
}

func errorNamesHolders(t *testing.T, w *world) {
	lock := w.try(t, w.key, advisory.Label("reconcile"))
	_, err := w.Lock(t.Context(), w.key, advisory.MaxWait(time.Millisecond))
	na := inVain(t, w, err, advisory.Exclusive, time.Millisecond)
	if len(na.Holders) != 1 {
		t.Fatalf("%v", na.Holders)
	}
	h := na.Holders[0]
	if !h.Local || h.Label != "reconcile" || h.PID == 0 || h.Mode != advisory.Exclusive || h.Since.IsZero() || h.Since.After(time.Now()) {
		t.Errorf("%+v", h)
	}
	if !strings.Contains(err.Error(), "label reconcile") {
		t.Errorf("%v", err)
	}
	harness.Release(t, lock)

	leave := w.occupy(w.key, advisory.Shared, advisory.Label("elsewhere"))
	_, err = w.Lock(t.Context(), w.key, advisory.MaxWait(0))
	na = inVain(t, w, err, advisory.Exclusive, 0)
	if len(na.Holders) != 1 {
		t.Fatalf("%v", na.Holders)
	}
	h = na.Holders[0]
	if h.Local || h.Label != "" || h.PID == 0 || h.Mode != advisory.Shared {
		t.Errorf("%+v", h)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = w.Lock(ctx, w.key)
	if na = inVain(t, w, err, advisory.Exclusive, 0); len(na.Holders) != 1 {
		t.Errorf("%v", na.Holders)
	}
	leave()
}

func tryDo(t *testing.T, w *world) {
	failure := errors.New("failure")
	ran, err := w.TryDo(t.Context(), w.key, func(context.Context) error { w.isTaken(t, w.key); return failure })
	if !ran || err != failure {
		t.Errorf("%v, %v", ran, err)
	}
	ran, err = w.TryDo(t.Context(), w.key, func(context.Context) error { return nil }, advisory.Shared)
	if !ran || err != nil {
		t.Errorf("%v, %v", ran, err)
	}
	w.isFree(t, w.key)
}

func doRunsUnderTheLock(t *testing.T, w *world) {
	for _, m := range harness.Modes {
		ran := 0
		err := w.Do(t.Context(), w.key, func(context.Context) error {
			ran++
			w.isTaken(t, w.key)
			return nil
		}, m)
		if ran != 1 || err != nil {
			t.Errorf("ran %d times: %v", ran, err)
		}
		if err := w.occupy(w.key)(); err != nil { // at once
			t.Error(err)
		}
	}
}

func doReturnsError(t *testing.T, w *world) {
	failure := errors.New("failure")
	if err := w.Do(t.Context(), w.key, func(context.Context) error { return failure }); err != failure {
		t.Errorf("%v", err)
	}
	w.isFree(t, w.key)
}

func doCtxEndsWithCtx(t *testing.T, w *world) {
	reason := errors.New("reason")
	ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), harness.Word{}, "here"))
	err := w.Do(ctx, w.key, func(ctx context.Context) error {
		if ctx.Err() != nil || ctx.Value(harness.Word{}) != "here" {
			t.Errorf("%v, %v", ctx.Err(), ctx.Value(harness.Word{}))
		}
		cancel(reason)
		harness.Ended(t, ctx, reason)
		w.isTaken(t, w.key) // until fn has returned
		return ctx.Err()
	})
	if err != context.Canceled {
		t.Errorf("%v", err)
	}
	w.isFree(t, w.key)
	ctx, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	w.Do(ctx, w.key, func(inner context.Context) error {
		outer, _ := ctx.Deadline()
		if d, ok := inner.Deadline(); !ok || !d.Equal(outer) {
			t.Errorf("deadline %v, %v", d, ok)
		}
		return nil
	})
}

func doCtxEndsWithLock(t *testing.T, w *world) {
	failure := errors.New("failure")
	err := w.Do(t.Context(), w.key, func(ctx context.Context) error {
		w.lose(w.key)
		harness.Ended(t, ctx, advisory.ErrLost)
		return failure
	})
	harness.IsErr(t, err, advisory.ErrLost, failure)
	w.isFree(t, w.key)
	err = w.Do(t.Context(), w.key, func(ctx context.Context) error {
		w.close()
		harness.Ended(t, ctx, advisory.ErrClosed)
		return failure
	})
	harness.IsErr(t, err, advisory.ErrClosed, failure)
}

func doTellsLoss(t *testing.T, w *world) {
	err := w.Do(t.Context(), w.key, func(ctx context.Context) error {
		w.lose(w.key)
		harness.Ended(t, ctx, advisory.ErrLost)
		return nil
	})
	harness.IsErr(t, err, advisory.ErrLost)
	w.isFree(t, w.key)
	ran, err := w.TryDo(t.Context(), w.key, func(ctx context.Context) error {
		lock, _ := advisory.FromContext(ctx)
		w.lost(t, lock)
		return nil
	})
	if !ran {
		t.Error("it did not run")
	}
	harness.IsErr(t, err, advisory.ErrLost)
	w.isFree(t, w.key)
}

func doCtxEndsWithFn(t *testing.T, w *world) {
	var kept context.Context
	var lock advisory.Lock
	w.Do(t.Context(), w.key, func(ctx context.Context) error {
		kept = ctx
		lock, _ = advisory.FromContext(ctx)
		return nil
	})
	harness.Ended(t, kept, context.Canceled)
	harness.Ended(t, lock.Context(), context.Canceled)
	harness.IsErr(t, lock.Unlock(), advisory.ErrNotHeld)
}

func doWaitEnds(t *testing.T, w *world) {
	leave := w.occupy(w.key)
	err := w.Do(t.Context(), w.key, func(context.Context) error { t.Error("it runs"); return nil }, advisory.MaxWait(time.Millisecond))
	inVain(t, w, err, advisory.Exclusive, time.Millisecond)
	leave()
	w.isFree(t, w.key)
}

func doPanics(t *testing.T, w *world) {
	for _, do := range []func(func(context.Context) error){
		func(fn func(context.Context) error) { w.Do(t.Context(), w.key, fn) },
		func(fn func(context.Context) error) { w.TryDo(t.Context(), w.key, fn) },
	} {
		func() {
			defer func() {
				if v := recover(); v != "panic" {
					t.Errorf("recovered %v", v)
				}
			}()
			do(func(context.Context) error { panic("panic") })
		}()
		if err := w.occupy(w.key)(); err != nil {
			t.Error(err)
		}
	}
}

func doGoexit(t *testing.T, w *world) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Do(t.Context(), w.key, func(context.Context) error { runtime.Goexit(); return nil })
	}()
	harness.Receive(t, done)
	if err := w.occupy(w.key)(); err != nil {
		t.Error(err)
	}
}

func doReleasedByFn(t *testing.T, w *world) {
	err := w.Do(t.Context(), w.key, func(ctx context.Context) error {
		lock, _ := advisory.FromContext(ctx)
		harness.Release(t, lock)
		harness.Ended(t, ctx, context.Canceled)
		w.isFree(t, w.key)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	w.isFree(t, w.key)
}

func nested(t *testing.T, w *world) {
	n, _ := w.key.Int64()
	other := advisory.Int64(n + 10_000)
	nothing := func(context.Context) error { t.Error("it runs"); return nil }
	within := func(ctx context.Context) error {
		for _, m := range harness.Modes {
			_, ok, err := w.TryLock(ctx, w.key, m)
			if ok {
				t.Error("got it twice")
			}
			harness.IsErr(t, err, advisory.ErrAlreadyHeld)
			_, err = w.Lock(ctx, w.key, m)
			harness.IsErr(t, err, advisory.ErrAlreadyHeld)
			harness.IsErr(t, w.Do(ctx, w.key, nothing, m), advisory.ErrAlreadyHeld)
			ran, err := w.TryDo(ctx, w.key, nothing, m)
			if ran {
				t.Error("it ran")
			}
			harness.IsErr(t, err, advisory.ErrAlreadyHeld)
		}
		return nil
	}
	for _, m := range harness.Modes {
		err := w.Do(t.Context(), w.key, func(ctx context.Context) error {
			within(ctx)
			return w.Do(ctx, other, within) // at any depth
		}, m)
		if err != nil {
			t.Error(err)
		}
	}
	// Not once the lock is gone.
	err := w.Do(t.Context(), w.key, func(ctx context.Context) error {
		lock, _ := advisory.FromContext(ctx)
		harness.Release(t, lock)
		return w.Do(context.WithoutCancel(ctx), w.key, func(context.Context) error { return nil })
	})
	if err != nil {
		t.Error(err)
	}
	w.isFree(t, w.key)
}

func fromContext(t *testing.T, w *world) {
	n, _ := w.key.Int64()
	other := advisory.Int64(n + 10_000)
	check := func(ctx context.Context, k advisory.Key, m advisory.Mode) {
		t.Helper()
		lock, ok := advisory.FromContext(ctx)
		if !ok || lock.Key() != k || lock.Mode() != m || lock.Context().Err() != nil || lock.Token() == 0 {
			t.Errorf("%v, %v", lock, ok)
		}
	}
	err := w.Do(t.Context(), w.key, func(ctx context.Context) error {
		check(ctx, w.key, advisory.Shared)
		_, err := w.TryDo(ctx, other, func(ctx context.Context) error { check(ctx, other, advisory.Exclusive); return nil })
		check(ctx, w.key, advisory.Shared)
		return err
	}, advisory.Shared)
	if err != nil {
		t.Error(err)
	}
}

func maxWaitIsNotForWork(t *testing.T, w *world) {
	harness.Eventually(t, "it has the lock in time", func() bool {
		ran := false
		err := w.Do(t.Context(), w.key, func(ctx context.Context) error {
			ran = true
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(150 * time.Millisecond):
				return nil
			}
		}, advisory.MaxWait(100*time.Millisecond))
		if err != nil && (ran || !errors.Is(err, advisory.ErrNotAcquired)) {
			t.Error(err)
		}
		return ran
	})
}

func holdsAtLeast(t *testing.T, w *world) {
	const least = 300 * time.Millisecond
	start := time.Now()
	lock := w.try(t, w.key, locker.HoldAtLeast(least))
	harness.Release(t, lock)
	harness.Ended(t, lock.Context(), context.Canceled)
	harness.IsErr(t, lock.Unlock(), advisory.ErrNotHeld)
	lock, err := w.Lock(t.Context(), w.key, locker.HoldAtLeast(least))
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < least {
		t.Errorf("free after %v", took)
	}
	w.lost(t, lock)
	harness.IsErr(t, lock.Unlock(), advisory.ErrLost)
	start = time.Now()
	if err := w.Do(t.Context(), w.key, func(context.Context) error { return nil }, locker.HoldAtLeast(least)); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took < least {
		t.Errorf("Do returned after %v", took)
	}
	start = time.Now()
	harness.Release(t, w.try(t, w.key, locker.HoldAtLeast(least)))
	if err := w.close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took < least {
		t.Errorf("Close returned after %v", took)
	}
}

func badArguments(t *testing.T, w *world) {
	nothing := func(context.Context) error { t.Error("it runs"); return nil }
	var nilObserver *harness.Recorder
	for _, v := range []struct {
		key  advisory.Key
		opts []advisory.LockerOption
		is   error
		says string
	}{
		{key: advisory.Key{}, is: advisory.ErrInvalidKey},
		{key: advisory.Name("account", ""), is: advisory.ErrInvalidKey},
		{key: w.key, opts: []advisory.LockerOption{advisory.MaxWait(-time.Second)}, says: "MaxWait(-1s)"},
		{key: w.key, opts: []advisory.LockerOption{locker.HoldAtLeast(-time.Second)}, says: "HoldAtLeast(-1s)"},
		{key: w.key, opts: []advisory.LockerOption{advisory.Mode(7)}, says: "Mode(7)"},
		{key: w.key, opts: []advisory.LockerOption{advisory.Shared, nil}, says: "option 2 of 2 is nil"},
		{key: w.key, opts: []advisory.LockerOption{advisory.WithObserver(nilObserver)}, says: "WithObserver"},
	} {
		calls := map[string]func() error{
			"TryLock": func() error { _, _, err := w.TryLock(t.Context(), v.key, v.opts...); return err },
			"Lock":    func() error { _, err := w.Lock(t.Context(), v.key, v.opts...); return err },
			"TryDo":   func() error { _, err := w.TryDo(t.Context(), v.key, nothing, v.opts...); return err },
			"Do":      func() error { return w.Do(t.Context(), v.key, nothing, v.opts...) },
		}
		for name, call := range calls {
			err := call()
			if err == nil || v.is != nil && !errors.Is(err, v.is) || !strings.Contains(err.Error(), v.says) {
				t.Errorf("%s(%v, %v): %v", name, v.key, v.opts, err)
			}
		}
	}
	for name, err := range map[string]error{
		"Do":    w.Do(t.Context(), w.key, nil),
		"TryDo": harness.Second(w.TryDo(t.Context(), w.key, nil)),
	} {
		if err == nil || !strings.Contains(err.Error(), "fn is nil") {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.isFree(t, w.key)
}

func afterClose(t *testing.T, w *world) {
	leave := w.occupy(w.key)
	waiting := w.lockLater(t.Context())
	w.waiting(1)
	if err := w.close(); err != nil {
		t.Error(err)
	}
	harness.IsErr(t, harness.Receive(t, waiting).err, advisory.ErrClosed)
	leave()
	nothing := func(context.Context) error { t.Error("it runs"); return nil }
	_, ok, err := w.TryLock(t.Context(), w.key)
	if ok {
		t.Error("got it")
	}
	harness.IsErr(t, err, advisory.ErrClosed)
	_, err = w.Lock(t.Context(), w.key)
	harness.IsErr(t, err, advisory.ErrClosed)
	harness.IsErr(t, w.Do(t.Context(), w.key, nothing), advisory.ErrClosed)
	harness.IsErr(t, harness.Second(w.TryDo(t.Context(), w.key, nothing)), advisory.ErrClosed)
	if err := w.close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

func observeHold(t *testing.T, w *world) {
	for _, m := range harness.Modes {
		r := &harness.Recorder{}
		opts := []advisory.LockerOption{m, advisory.Label("account"), advisory.WithObserver(r)}
		leave := w.occupy(w.key)
		c := w.lockLater(t.Context(), opts...)
		w.waiting(1)
		time.Sleep(20 * time.Millisecond)
		if events := r.All(); len(events) != 0 {
			t.Errorf("%+v", events)
		}
		leave()
		lock := granted(t, c)
		if e := r.Are(t, advisory.Acquired)[0]; e.Waited < 20*time.Millisecond || e.Local || e.PID == 0 || e.Err != nil || e.Held != 0 {
			t.Errorf("%+v", e)
		}
		time.Sleep(20 * time.Millisecond)
		harness.Release(t, lock)
		if e := r.Are(t, advisory.Acquired, advisory.Released)[1]; e.Held < 20*time.Millisecond || e.Local || e.PID == 0 || e.Err != nil || e.Waited != 0 {
			t.Errorf("%+v", e)
		}
		lock.Unlock() // in vain
		w.pause()
		for _, e := range r.Are(t, advisory.Acquired, advisory.Released) {
			harness.IsOf(t, e, w.key, m, "account")
		}
	}
	// Readers of one process share one hold.
	a := w.try(t, w.key, advisory.Shared)
	r := &harness.Recorder{}
	harness.Release(t, w.try(t, w.key, advisory.Shared, advisory.WithObserver(r)))
	for _, e := range r.Are(t, advisory.Acquired, advisory.Released) {
		if !e.Local || e.PID == 0 {
			t.Errorf("%+v", e)
		}
	}
	harness.Release(t, a)
}

func observeInVain(t *testing.T, w *world) {
	r := &harness.Recorder{}
	opts := []advisory.LockerOption{advisory.Shared, advisory.Label("account"), advisory.WithObserver(r)}
	leave := w.occupy(w.key)
	w.TryLock(t.Context(), w.key, opts...)
	w.TryDo(t.Context(), w.key, func(context.Context) error { return nil }, opts...)
	for _, e := range r.Are(t, advisory.NotAcquired, advisory.NotAcquired) {
		harness.IsOf(t, e, w.key, advisory.Shared, "account")
		if e.Err != nil {
			t.Errorf("a try: %+v", e)
		}
	}
	r.Events = nil
	w.Lock(t.Context(), w.key, append(opts, advisory.MaxWait(0))...)
	w.Lock(t.Context(), w.key, append(opts, advisory.MaxWait(20*time.Millisecond))...)
	w.Lock(harness.Cancelled(t), w.key, opts...)
	events := r.Are(t, advisory.NotAcquired, advisory.NotAcquired, advisory.NotAcquired)
	for i, e := range events {
		harness.IsOf(t, e, w.key, advisory.Shared, "account")
		harness.IsErr(t, e.Err, advisory.ErrNotAcquired)
		if i == 1 && e.Waited < 20*time.Millisecond {
			t.Errorf("%+v", e)
		}
	}
	harness.IsErr(t, events[2].Err, context.Canceled)
	leave()
	r.Events = nil
	w.close()
	w.Lock(t.Context(), w.key, opts...)
	harness.IsErr(t, r.Are(t, advisory.NotAcquired)[0].Err, advisory.ErrClosed)
}

func observeLoss(t *testing.T, w *world) {
	r := &harness.Recorder{}
	lock := w.try(t, w.key, advisory.Label("account"), advisory.WithObserver(r))
	time.Sleep(20 * time.Millisecond)
	w.lost(t, lock)
	events := r.Are(t, advisory.Acquired, advisory.Lost)
	for _, e := range events {
		harness.IsOf(t, e, w.key, advisory.Exclusive, "account")
	}
	if e := events[1]; e.Held < 20*time.Millisecond || e.PID != events[0].PID || e.PID == 0 {
		t.Errorf("%+v", e)
	}
	harness.IsErr(t, events[1].Err, advisory.ErrLost)
	lock.Unlock()
	w.pause()
	r.Are(t, advisory.Acquired, advisory.Lost) // each hold ends once
}

func observeDo(t *testing.T, w *world) {
	r := &harness.Recorder{}
	w.Do(t.Context(), w.key, func(context.Context) error { r.Are(t, advisory.Acquired); return nil }, advisory.WithObserver(r))
	r.Are(t, advisory.Acquired, advisory.Released)
	r = &harness.Recorder{}
	w.Do(t.Context(), w.key, func(ctx context.Context) error { w.lose(w.key); <-ctx.Done(); return nil }, advisory.WithObserver(r))
	r.Are(t, advisory.Acquired, advisory.Lost)
	// What makes no sense is no event.
	r = &harness.Recorder{}
	w.Do(t.Context(), w.key, nil, advisory.WithObserver(r))
	w.Do(t.Context(), advisory.Key{}, func(context.Context) error { return nil }, advisory.WithObserver(r))
	w.pause()
	r.Are(t)
}

func observeDowngrade(t *testing.T, w *world) {
	r := &harness.Recorder{}
	lock := w.try(t, w.key, advisory.WithObserver(r))
	if err := lock.Downgrade(t.Context()); err != nil {
		t.Error(err)
	}
	harness.Release(t, lock)
	events := r.Are(t, advisory.Acquired, advisory.Released)
	if events[0].Mode != advisory.Exclusive || events[1].Mode != advisory.Shared {
		t.Errorf("%+v", events)
	}
}

func manyAtOnce(t *testing.T, w *world) {
	w.isFree(t, w.key) // there is a session now
	var writers, readers, runs atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 0))
			for range 10 {
				m := harness.Modes[random.IntN(2)]
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(20)+1)*5*time.Millisecond)
				err := w.Do(ctx, w.key, func(context.Context) error {
					runs.Add(1)
					n := &readers
					if m == advisory.Exclusive {
						n = &writers
					}
					mine := n.Add(1)
					if m == advisory.Exclusive && (mine != 1 || readers.Load() != 0) || m == advisory.Shared && writers.Load() != 0 {
						t.Errorf("%d writers beside %d readers", writers.Load(), readers.Load())
					}
					time.Sleep(time.Duration(random.IntN(2)) * time.Millisecond)
					n.Add(-1)
					return nil
				}, m)
				cancel()
				if err != nil && !errors.Is(err, advisory.ErrNotAcquired) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if runs.Load() == 0 {
		t.Error("nobody got it")
	}
	w.isFree(t, w.key)
}
