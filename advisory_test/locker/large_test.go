package locker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// BenchmarkSemaphore is an Acquire and its Unlock, of semaphores whose slots are mostly free.
func BenchmarkSemaphore(b *testing.B) {
	for _, d := range harness.BenchmarkDrivers {
		for _, n := range []int{1, 10, 1_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/n=%d", d.Name, n), func(b *testing.B) {
				sem := locker.New(d.Open(b, pgtest.URL(b)).DB).Semaphore(harness.Key, n)
				var took []time.Duration
				for b.Loop() {
					start := time.Now()
					lock, err := sem.Acquire(context.Background())
					if err == nil {
						err = lock.Unlock()
					}
					if err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Since(start))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "us-median")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// What a large semaphore asks the server for does not grow with n while slots are free, and its
// largest n works; above it each call fails.
func TestSemaphoreWithAMillionSlots(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		l := p.Locker(t)
		for _, n := range []int{locker.MaxSlots + 1, 1<<31 - 1, 0, -1} {
			if _, err := l.Semaphore(harness.Key, n).Acquire(t.Context()); err == nil || errors.Is(err, advisory.ErrNotAcquired) {
				t.Errorf("n = %d: %v", n, err)
			}
			if _, ok, err := l.Semaphore(harness.Key, n).TryAcquire(t.Context()); ok || err == nil {
				t.Errorf("n = %d: %v, %v", n, ok, err)
			}
		}
		sem := l.Semaphore(harness.Key, locker.MaxSlots)
		var locks advisory.Locks
		for range 200 {
			lock, err := sem.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			locks = append(locks, lock)
		}
		if err := locks.Unlock(); err != nil {
			t.Error(err)
		}
		p.NoLocks(t)
	})
}

// A semaphore with more slots than a wait has queues: all are taken, and whichever slot another
// process leaves free is found, by a try and by a wait.
func TestFreedSlotOfALargeSemaphoreIsFound(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		const n = 300
		a, b := p.Locker(t), p.Locker(t)
		mine, others := a.Semaphore(harness.Key, n), b.Semaphore(harness.Key, n)
		var locks advisory.Locks
		for range n {
			lock, ok, err := others.TryAcquire(t.Context())
			if !ok || err != nil {
				t.Fatal(len(locks), ok, err)
			}
			locks = append(locks, lock)
		}
		if _, ok, err := mine.TryAcquire(t.Context()); ok || err != nil {
			t.Error(ok, err)
		}
		if _, err := mine.Acquire(t.Context(), advisory.MaxWait(300*time.Millisecond)); !errors.Is(err, advisory.ErrNotAcquired) {
			t.Error(err)
		}
		for range 10 {
			got := make(chan advisory.Lock)
			go func() {
				lock, err := mine.Acquire(context.Background())
				if err != nil {
					t.Error(err)
				}
				got <- lock
			}()
			harness.Eventually(t, "it waits", func() bool { return a.Stats().Waiting > 0 })
			free := locks[0]
			locks = locks[1:]
			free.Unlock()
			lock := <-got
			if lock.Key() != free.Key() {
				t.Errorf("got %v, and %v was free", lock.Key(), free.Key())
			}
			locks = append(locks, lock)
		}
		if err := locks.Unlock(); err != nil {
			t.Error(err)
		}
		p.NoLocks(t)
	})
}

// Calls with many keys heed ctx, and others of the Locker go on meanwhile.
func TestManyKeysLeaveTheLockerToOthers(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		l := p.Locker(t)
		keys := harness.KeysUpTo(100_000)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := l.TryLockAny(ctx, keys); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := l.LockAll(ctx, keys); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		twice := slices.Concat(keys, keys)
		lock, ok, err := l.TryLockAny(t.Context(), twice)
		if !ok || err != nil || lock.Key() != keys[0] {
			t.Error(ok, err)
		}
		lock.Unlock()
		lock, err = l.LockAny(t.Context(), twice)
		if err != nil || lock.Key() != keys[0] {
			t.Error(err)
		}
		lock.Unlock()
		p.NoLocks(t)
	})
}
