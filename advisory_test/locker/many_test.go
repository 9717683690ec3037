package locker_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/locker"
)

func TestLockerLockAll(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a, b := p.Locker(t), p.Locker(t)
		keys := harness.KeysUpTo(100)
		locks, ok, err := a.TryLockAll(t.Context(), append(keys, keys...))
		if !ok || err != nil || len(locks) != 100 {
			t.Fatal(len(locks), ok, err)
		}
		if _, ok, err := b.TryLockAll(t.Context(), []advisory.Key{advisory.Int64(1000), keys[50]}); ok || err != nil {
			t.Error(ok, err)
		}
		if held, _ := p.Locks(t); held != 100 {
			t.Errorf("%d are held", held)
		}
		var na *advisory.NotAcquiredError
		if _, err := b.LockAll(t.Context(), []advisory.Key{advisory.Int64(1000), keys[50]}, advisory.MaxWait(100*time.Millisecond)); !errors.As(err, &na) || na.Key != keys[50] {
			t.Error(err)
		}
		got := make(chan error, 1)
		go func() {
			locks, err := b.LockAll(context.Background(), keys)
			if err == nil {
				err = locks.Unlock()
			}
			got <- err
		}()
		time.Sleep(50 * time.Millisecond)
		if err := locks.Unlock(); err != nil {
			t.Error(err)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
		p.NoLocks(t)
	})
}

func TestLockerLockAllNeverDeadlocks(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		lockers := []*locker.Locker{p.Locker(t), p.Locker(t)}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for j := range 10 {
					keys := []advisory.Key{advisory.Int64(int64(i % 3)), advisory.Int64(int64(j % 4)), advisory.Int64(int64(i+j) % 5)}
					locks, err := lockers[i%2].LockAll(context.Background(), keys)
					if err != nil {
						t.Error(err)
						return
					}
					locks.Unlock()
				}
			})
		}
		wg.Wait()
		p.NoLocks(t)
	})
}

func TestLockerLockAny(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a, b := p.Locker(t), p.Locker(t)
		keys := harness.KeysUpTo(3)
		var locks []advisory.Lock
		for i := range keys {
			lock, ok, err := []*locker.Locker{a, b}[i%2].TryLockAny(t.Context(), keys)
			if !ok || err != nil || lock.Key() != keys[i] {
				t.Fatal(lock.Key(), ok, err)
			}
			locks = append(locks, lock)
		}
		if _, ok, err := a.TryLockAny(t.Context(), keys); ok || err != nil {
			t.Error(ok, err)
		}
		for _, wait := range []time.Duration{0, 50 * time.Millisecond} {
			if _, err := b.LockAny(t.Context(), keys, advisory.MaxWait(wait)); !errors.Is(err, advisory.ErrNotAcquired) {
				t.Error(err)
			}
		}
		got := make(chan advisory.Lock, 1)
		go func() {
			lock, err := a.LockAny(context.Background(), keys)
			if err != nil {
				t.Error(err)
			}
			got <- lock
		}()
		time.Sleep(50 * time.Millisecond)
		locks[1].Unlock()
		lock := <-got
		if lock.Key() != keys[1] {
			t.Errorf("got %v", lock.Key())
		}
		lock.Unlock()
		locks[0].Unlock()
		locks[2].Unlock()
		p.NoLocks(t)
	})
}

// What a wait for several keys leaves behind for a moment, a try does not take for another's.
func TestTryLockAnyAfterAWaitForTheSameKeys(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a, b := p.Locker(t), p.Locker(t)
		keys := harness.KeysUpTo(8) // more than there are sessions to wait
		for range 20 {
			taken, ok, err := a.TryLockAll(t.Context(), keys)
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			got := make(chan advisory.Lock)
			go func() {
				lock, err := b.LockAny(context.Background(), keys)
				if err != nil {
					t.Error(err)
				}
				got <- lock
			}()
			harness.Eventually(t, "it waits", func() bool { return b.Stats().Waiting == len(keys) })
			taken.Unlock()
			locks := advisory.Locks{<-got}
			for range len(keys) - 1 {
				lock, ok, err := b.TryLockAny(t.Context(), keys)
				if !ok || err != nil {
					t.Fatalf("%d of %d keys: %v", len(locks), len(keys), err)
				}
				locks = append(locks, lock)
			}
			locks.Unlock()
		}
		p.NoLocks(t)
	})
}

func TestSemaphoreNeverLetsInMoreThanN(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		const n = 3
		lockers := []*locker.Locker{p.Locker(t), p.Locker(t)}
		var inside, most atomic.Int64
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				sem := lockers[i%2].Semaphore(harness.Key, n)
				for range 5 {
					if err := sem.Do(context.Background(), func(context.Context) error {
						now := inside.Add(1)
						for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
						}
						time.Sleep(time.Millisecond)
						inside.Add(-1)
						return nil
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if most.Load() > n {
			t.Errorf("%d inside at once", most.Load())
		}
		t.Logf("at most %d inside", most.Load())
		p.NoLocks(t) // what the other's waits got in vain is given back a little later
		sem := lockers[0].Semaphore(harness.Key, n)
		for range n {
			if _, ok, err := sem.TryAcquire(t.Context()); !ok || err != nil {
				t.Error(ok, err)
			}
		}
		if _, ok, _ := lockers[1].Semaphore(harness.Key, n).TryAcquire(t.Context()); ok {
			t.Error("one too many")
		}
		if _, err := lockers[1].Semaphore(harness.Key, 0).Acquire(t.Context()); err == nil {
			t.Error("n = 0")
		}
	})
}

func TestSemaphoreTriesAtOnceAllSucceed(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		sem := p.Locker(t).Semaphore(harness.Key, 10)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, ok, err := sem.TryAcquire(context.Background()); !ok || err != nil {
					t.Error(ok, err)
				}
			})
		}
		wg.Wait()
	})
}

func TestDowngrade(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a, b := p.Locker(t), p.Locker(t)
		lock, _ := harness.LockerTry(t, a, harness.Key)
		writer := make(chan error, 1)
		go func() {
			w, err := b.Lock(context.Background(), harness.Key)
			if err == nil {
				err = w.Unlock()
			}
			writer <- err
		}()
		harness.Eventually(t, "the writer waits", func() bool { _, w := p.Locks(t); return w == 1 })
		if err := lock.Downgrade(t.Context()); err != nil {
			t.Fatal(err)
		}
		if lock.Mode() != advisory.Shared {
			t.Error(lock.Mode())
		}
		reader, ok := harness.LockerTry(t, a, harness.Key, advisory.Shared)
		if !ok {
			t.Error("no second reader in the process")
		}
		lock.Unlock()
		select {
		case err := <-writer:
			t.Errorf("the writer is in beside a reader: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		reader.Unlock()
		if err := <-writer; err != nil {
			t.Error(err)
		}
		p.NoLocks(t)
	})
}

func TestHoldAtLeast(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a, b := locker.New(p.DB), p.Locker(t)
		start := time.Now()
		lock, _, err := a.TryLock(t.Context(), harness.Key, locker.HoldAtLeast(300*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		lock.Unlock()
		if _, ok := harness.LockerTry(t, b, harness.Key); ok && time.Since(start) < 300*time.Millisecond {
			t.Error("free too early")
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if time.Since(start) < 300*time.Millisecond {
			t.Error("Close did not wait")
		}
		start = time.Now()
		b.Do(t.Context(), advisory.Int64(1), func(context.Context) error { return nil }, locker.HoldAtLeast(100*time.Millisecond))
		if time.Since(start) < 100*time.Millisecond {
			t.Error("Do did not wait")
		}
	})
}

func TestLead(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		var leaders, terms atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 3 {
			l := p.Locker(t, locker.WithApplicationName("candidate"))
			wg.Go(func() {
				err := l.Lead(ctx, harness.Key, func(ctx context.Context) error {
					// A session that the server has ended hears of it within a heartbeat, in
					// which the next may lead already.
					leaders.Add(1)
					defer leaders.Add(-1)
					harness.Eventually(t, "the last leader was told", func() bool { return leaders.Load() == 1 || ctx.Err() != nil })
					terms.Add(1)
					<-ctx.Done()
					return ctx.Err()
				})
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		for term := range int64(3) {
			harness.Eventually(t, "somebody leads", func() bool { return terms.Load() > term && leaders.Load() == 1 })
			if term < 2 {
				harness.DoSQL(t, p, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'candidate'`)
			}
		}
		cancel()
		wg.Wait()
		p.NoLocks(t)
	})
}

func TestNestedDoOfTheSameKey(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		l := p.Locker(t)
		err := l.Do(t.Context(), harness.Key, func(ctx context.Context) error {
			if lock, ok := advisory.FromContext(ctx); !ok || lock.Key() != harness.Key {
				t.Error("FromContext")
			}
			return l.Do(ctx, advisory.Int64(1), func(ctx context.Context) error {
				if err := l.Do(ctx, harness.Key, func(context.Context) error { return nil }); !errors.Is(err, advisory.ErrAlreadyHeld) {
					t.Error(err)
				}
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
		p.NoLocks(t)
	})
}
