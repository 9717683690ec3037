package locker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// locksNowhere reports whether no Locker has connections any more. One may be idle in the pool:
// the second one of the look for a pooler.
func locksNowhere(p *harness.Pool) bool {
	st := p.Stats()
	return st.InUse == 0 && st.OpenConnections <= 1
}

func TestLockerExcludes(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a, b := p.Locker(t), p.Locker(t)
		for _, k := range harness.AllKeys {
			for _, m := range harness.Modes {
				la, ok := harness.LockerTry(t, a, k, m)
				if !ok {
					t.Fatalf("%v %v: not free", k, m)
				}
				for _, other := range []*locker.Locker{a, b} {
					for _, m2 := range harness.Modes {
						lb, got := harness.LockerTry(t, other, k, m2)
						if want := m == advisory.Shared && m2 == advisory.Shared; got != want {
							t.Errorf("%v beside %v on %v: %v", m2, m, k, got)
						}
						if got {
							if err := lb.Unlock(); err != nil {
								t.Error(err)
							}
						}
					}
				}
				if err := la.Unlock(); err != nil {
					t.Error(err)
				}
				if err := la.Unlock(); !errors.Is(err, advisory.ErrNotHeld) {
					t.Errorf("second Unlock: %v", err)
				}
			}
		}
		p.NoLocks(t)
	})
}

func TestLockerWaits(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a, b := p.Locker(t), p.Locker(t)
		for _, other := range []*locker.Locker{a, b} {
			la, _ := harness.LockerTry(t, a, harness.Key)
			got := make(chan error, 1)
			go func() {
				lb, err := other.Lock(context.Background(), harness.Key)
				if err == nil {
					err = lb.Unlock()
				}
				got <- err
			}()
			time.Sleep(300 * time.Millisecond)
			select {
			case err := <-got:
				t.Fatalf("did not wait: %v", err)
			default:
			}
			la.Unlock()
			if err := <-got; err != nil {
				t.Fatal(err)
			}
		}
		p.NoLocks(t)
	})
}

func TestLockerManyGoroutinesOneKey(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		lockers := []*locker.Locker{p.Locker(t), p.Locker(t), p.Locker(t)}
		var inside, max, total atomic.Int64
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				l := lockers[i%len(lockers)]
				for range 20 {
					err := l.Do(context.Background(), harness.Key, func(ctx context.Context) error {
						n := inside.Add(1)
						if n > max.Load() {
							max.Store(n)
						}
						total.Add(1)
						inside.Add(-1)
						return ctx.Err()
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if max.Load() != 1 || total.Load() != 600 {
			t.Errorf("at most %d inside, %d in all", max.Load(), total.Load())
		}
		p.NoLocks(t)
	})
}

func TestLockerManyKeys(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		p.SetMaxOpenConns(5)
		l := p.Locker(t)
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				if err := l.Do(context.Background(), advisory.Int64(int64(i)), func(context.Context) error { time.Sleep(time.Millisecond); return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		t.Logf("%+v", l.Stats())
		p.NoLocks(t)
	})
}

func TestLockerMoreKeysWaitedForThanSessions(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a, b := p.Locker(t), p.Locker(t)
		var locks []advisory.Lock
		var wg sync.WaitGroup
		for i := range 20 {
			lock, _ := harness.LockerTry(t, a, advisory.Int64(int64(i)))
			locks = append(locks, lock)
			wg.Go(func() {
				lock, err := b.Lock(context.Background(), advisory.Int64(int64(i)))
				if err != nil {
					t.Error(err)
					return
				}
				lock.Unlock()
			})
		}
		time.Sleep(200 * time.Millisecond)
		if n := b.Stats().Sessions; n > 4 {
			t.Errorf("%d sessions", n)
		}
		for _, lock := range locks {
			if err := lock.Unlock(); err != nil {
				t.Error(err)
			}
		}
		wg.Wait()
		p.NoLocks(t)
	})
}

func TestLockerTellsLoss(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		l, other := p.Locker(t, locker.WithApplicationName("victim")), p.Locker(t)
		lock, _ := harness.LockerTry(t, l, harness.Key)
		kill := func() {
			harness.DoSQL(t, p, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'victim' AND datname = current_database()")
		}
		kill()
		select {
		case <-lock.Context().Done():
		case <-time.After(harness.Patience):
			t.Fatal("not told")
		}
		if !errors.Is(context.Cause(lock.Context()), advisory.ErrLost) {
			t.Errorf("cause %v", context.Cause(lock.Context()))
		}
		var lo advisory.Lock
		// The server says that it ends a session a moment before it lets go of its locks.
		harness.Eventually(t, "it is free after the loss", func() (ok bool) { lo, ok = harness.LockerTry(t, other, harness.Key); return ok })
		if err := lock.Unlock(); !errors.Is(err, advisory.ErrLost) {
			t.Errorf("Unlock after a loss: %v", err)
		}
		if _, ok := harness.LockerTry(t, l, harness.Key); ok {
			t.Error("two holders")
		}
		lo.Unlock()
		err := l.Do(t.Context(), harness.Key, func(ctx context.Context) error {
			kill()
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, advisory.ErrLost) {
			t.Errorf("Do: %v", err)
		}
		p.NoLocks(t)
	})
}

func TestLockerFencing(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		lockers := []*locker.Locker{p.Locker(t, locker.WithFencing()), p.Locker(t, locker.WithFencing())}
		var last uint64
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for range 10 {
					lock, err := lockers[i%2].Lock(context.Background(), harness.Key)
					if err != nil {
						t.Error(err)
						return
					}
					if lock.Token() <= last {
						t.Errorf("token %d after %d", lock.Token(), last)
					}
					last = lock.Token()
					lock.Unlock()
				}
			})
		}
		wg.Wait()
	})
}

func TestLockerNotAcquired(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a, b := p.Locker(t), p.Locker(t)
		harness.LockerTry(t, a, harness.Key, advisory.Label("reconcile"))
		for i, l := range []*locker.Locker{a, b} {
			_, err := l.Lock(t.Context(), harness.Key, advisory.MaxWait(100*time.Millisecond))
			var na *advisory.NotAcquiredError
			if !errors.As(err, &na) || len(na.Holders) != 1 || na.Holders[0].Local != (i == 0) {
				t.Errorf("%v", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			if _, err := l.Lock(ctx, harness.Key); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, advisory.ErrNotAcquired) {
				t.Errorf("%v", err)
			}
			cancel()
		}
		harness.Eventually(t, "nobody waits", func() bool { _, w := p.Locks(t); return w == 0 })
	})
}

func TestLockerClose(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		l := locker.New(p.DB)
		lock, _ := harness.LockerTry(t, l, harness.Key)
		waiting := make(chan error, 1)
		go func() { _, err := l.Lock(context.Background(), harness.Key); waiting <- err }()
		harness.Eventually(t, "it waits", func() bool { return l.Stats().Waiting == 1 })
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := <-waiting; !errors.Is(err, advisory.ErrClosed) {
			t.Errorf("waiter: %v", err)
		}
		if !errors.Is(context.Cause(lock.Context()), advisory.ErrClosed) {
			t.Errorf("cause: %v", context.Cause(lock.Context()))
		}
		if _, _, err := l.TryLock(t.Context(), harness.Key); !errors.Is(err, advisory.ErrClosed) {
			t.Errorf("TryLock: %v", err)
		}
		if err := lock.Unlock(); !errors.Is(err, advisory.ErrClosed) {
			t.Errorf("Unlock: %v", err)
		}
		p.NoLocks(t)
		if !locksNowhere(p) {
			t.Errorf("%+v are left", p.Stats())
		}
	})
}

func BenchmarkLockerOwnKeys(b *testing.B) {
	for _, d := range harness.Drivers[:2] {
		b.Run(d.Name, func(b *testing.B) {
			p := d.Open(b, benchURL(b))
			l := locker.New(p.DB)
			defer l.Close()
			l.Ping(context.Background())
			run := func(name string, pair func(k int64)) {
				b.Run(name, func(b *testing.B) {
					var wg sync.WaitGroup
					var next atomic.Int64
					for g := range 256 {
						wg.Go(func() {
							for next.Add(1) <= int64(b.N) {
								pair(int64(g))
							}
						})
					}
					wg.Wait()
				})
			}
			run("locker", func(k int64) {
				lock, ok, err := l.TryLock(context.Background(), advisory.Int64(k))
				if !ok || err != nil {
					b.Error(ok, err)
				}
				lock.Unlock()
			})
			p.SetMaxOpenConns(18)
			conns := make(chan *sql.Conn, 16)
			for range 16 {
				c, err := p.DB.Conn(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				defer c.Close()
				conns <- c
			}
			run("byhand", func(k int64) {
				c := <-conns
				var ok bool
				c.QueryRowContext(context.Background(), "SELECT pg_try_advisory_lock($1)", k).Scan(&ok)
				c.QueryRowContext(context.Background(), "SELECT pg_advisory_unlock($1)", k).Scan(&ok)
				conns <- c
			})
		})
	}
}

var _ = fmt.Sprint

func benchURL(b *testing.B) string { return pgtest.URL(b) }
