package locker_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
)

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
		"TryLock refused": func() (advisory.Lock, error) {
			l, _, err := w.TryLock(t.Context(), w.key, advisory.Shared)
			return l, err
		},
		"Lock that ends": func() (advisory.Lock, error) {
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
			if err == nil && name != "TryLock refused" {
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
		t.Errorf("%v: a try does not report contention", err)
	}
	ran, err := w.TryDo(ctx, w.key, func(context.Context) error { return nil })
	if ran {
		t.Error("it ran")
	}
	harness.IsErr(t, err, context.Canceled, reason)
	w.isFree(t, w.key)
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
