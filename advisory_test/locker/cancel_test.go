package locker_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// cancelAll has pg_cancel_backend called, again and again, on all sessions of an
// application, until stop.
func cancelAll(p *harness.Pool, t *testing.T, application string) (stop func() (cancels int)) {
	conn := p.NewConn(t)
	done := make(chan struct{})
	n := make(chan int)
	go func() {
		sum := 0
		for {
			select {
			case <-done:
				n <- sum
				return
			default:
				sum += harness.Ask[int](t, conn, "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1", application)
			}
		}
	}()
	return func() int { close(done); return <-n }
}

// Whatever a Locker's sessions do when they are cancelled, no lock is lost and none is left
// behind: a call that fails has taken nothing.
func TestCancelsOfALockersSessions(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	harness.EachDriverAtOnce(t, func(t *testing.T, p *harness.Pool) {
		if p.By.Sqlx {
			t.Skip("as pq")
		}
		const victim = "cancelled"
		l := p.Locker(t, locker.WithApplicationName(victim))
		kept, ok, err := l.TryLockAll(t.Context(), harness.KeysUpTo(50))
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		// Others have what it waits for.
		other := p.Locker(t)
		busy, ok, err := other.TryLockAll(t.Context(), []advisory.Key{advisory.Pair(1, 0), advisory.Pair(1, 1)})
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		var waiting sync.WaitGroup
		for i, lock := range busy {
			waiting.Go(func() {
				got, err := l.Lock(context.Background(), lock.Key())
				if err != nil {
					t.Errorf("waiter %d: %v", i, err)
					return
				}
				if err := got.Unlock(); err != nil {
					t.Error(err)
				}
			})
		}

		stop := cancelAll(p, t, victim)
		var failed, done atomic.Int64
		count := func(err error) bool {
			done.Add(1)
			if err == nil {
				return true
			}
			failed.Add(1)
			if !strings.Contains(err.Error(), "canceled on the server") {
				t.Error(err)
			}
			return false
		}
		release := func(lock interface{ Unlock() error }) {
			if err := lock.Unlock(); err != nil {
				t.Errorf("Unlock: %v", err)
			}
		}
		database := harness.Ask[string](t, p, "SELECT current_database()")
		hits := func() int {
			return strings.Count(pgtest.SharedServer(t).Log(), database+"/"+victim+" ERROR:  canceling statement")
		}
		// Two seconds at least. A statement is short, so on a busy machine it takes longer to hit one.
		var goOn atomic.Bool
		goOn.Store(true)
		start := time.Now()
		time.AfterFunc(2*time.Second, func() {
			for pgtest.SharedServer(t).Kind() != "url" && hits() == 0 && time.Since(start) < harness.Patience {
				time.Sleep(100 * time.Millisecond)
			}
			goOn.Store(false)
		})
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				own := func(i int) advisory.Key { return advisory.Pair(int32(10+g), int32(i)) }
				for goOn.Load() {
					if lock, ok, err := l.TryLock(context.Background(), own(0)); count(err) {
						if !ok {
							t.Error("its own key is not free")
						} else {
							release(lock)
						}
					}
					if locks, ok, err := l.TryLockAll(context.Background(), []advisory.Key{own(1), own(2), own(3)}); count(err) && ok {
						release(locks)
					}
					if lock, ok, err := l.TryLockAny(context.Background(), []advisory.Key{own(4), own(5)}); count(err) && ok {
						release(lock)
					}
					if lock, err := l.Lock(context.Background(), own(6)); count(err) {
						count(lock.Downgrade(context.Background()))
						release(lock)
					}
				}
			})
		}
		wg.Wait()
		if err := busy.Unlock(); err != nil {
			t.Error(err)
		}
		waiting.Wait()
		cancels := stop()
		t.Logf("%d cancels, %d hit, %d of %d calls failed, %+v", cancels, hits(), failed.Load(), done.Load(), l.Stats())
		if hits() == 0 && pgtest.SharedServer(t).Kind() != "url" {
			t.Error("no cancel hit a call")
		}
		for _, lock := range kept {
			if err := lock.Context().Err(); err != nil {
				t.Fatalf("a lock that was held all the while is lost: %v", context.Cause(lock.Context()))
			}
		}
		if held, _ := p.Locks(t); held != len(kept) {
			t.Errorf("%d locks on the server, %d are held", held, len(kept))
		}
		release(kept)
		p.NoLocks(t)
	})
}

// At a lock table that is full a call fails and leaves nothing, and what was held stays.
func TestLockerAtAFullLockTable(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t, "max_locks_per_transaction=10", "max_connections=20")
	for _, d := range harness.Drivers[:2] {
		t.Run(d.Name, func(t *testing.T) {
			p := d.Open(t, server.Database(t))
			hog := p.NewConn(t)
			l := p.Locker(t)
			kept, ok, err := l.TryLockAll(t.Context(), harness.KeysUpTo(20))
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			full := harness.FillLockTable(t, hog)
			lock, ok, err := l.TryLock(t.Context(), advisory.Int64(1000))
			if ok || !harness.IsFull(err) {
				t.Errorf("TryLock: %v, %v", ok, err)
			}
			if _, ok, err := l.TryLockAll(t.Context(), harness.KeysUpTo(40)[20:]); ok || !harness.IsFull(err) {
				t.Errorf("TryLockAll: %v, %v", ok, err)
			}
			if _, err := l.Lock(t.Context(), advisory.Int64(1001)); !harness.IsFull(err) {
				t.Errorf("Lock: %v", err)
			}
			if err := lock.Unlock(); err == nil {
				t.Error("Unlock of nothing")
			}
			for _, lock := range kept {
				if err := lock.Context().Err(); err != nil {
					t.Fatalf("a lock that was held is lost: %v", context.Cause(lock.Context()))
				}
			}
			held := harness.Ask[int](t, hog, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()")
			if held != len(kept) {
				t.Errorf("beside the hog's %d, %d are locked, %d are held", full, held, len(kept))
			}
			harness.DoSQL(t, hog, "SELECT pg_advisory_unlock_all()")
			harness.Eventually(t, "it works again", func() bool {
				lock, ok, err := l.TryLock(t.Context(), advisory.Int64(1000))
				if ok {
					lock.Unlock()
				}
				return ok && err == nil
			})
			if err := kept.Unlock(); err != nil {
				t.Error(err)
			}
			p.NoLocks(t)
		})
	}
}
