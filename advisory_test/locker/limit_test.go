package locker_test

import (
	"context"
	"database/sql"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// Lockers that together ask for more than the server's lock table has are told so,
// while others go on connecting and working.
func TestLockersLeaveRoomInTheLockTable(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	// Settings that leave little beyond what the Lockers reckon with.
	server := pgtest.NewServer(t, "max_locks_per_transaction=64", "max_connections=100",
		"autovacuum_max_workers=1", "max_worker_processes=1", "max_wal_senders=0")
	url := server.Database(t)
	const table = 64 * 100

	var connected atomic.Int64
	stop := make(chan struct{})
	var others sync.WaitGroup
	for range 2 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				db, err := sql.Open("postgres", url)
				if err == nil {
					_, err = db.Exec("CREATE TEMPORARY TABLE t AS SELECT count(*) FROM pg_class a JOIN pg_attribute b ON a.oid = b.attrelid")
					db.Close()
				}
				if err != nil {
					t.Errorf("somebody else: %v", err)
					return
				}
				connected.Add(1)
			}
		})
	}

	var lockers []*locker.Locker
	for i := range 12 {
		lockers = append(lockers, harness.Drivers[i%2].Open(t, url).Locker(t))
	}
	var full atomic.Int64
	var wg sync.WaitGroup
	for i, l := range lockers {
		for g := range 8 {
			wg.Go(func() {
				for n := range table / 8 {
					k := advisory.Pair(int32(8*i+g), int32(n))
					var err error
					if g%2 == 0 {
						_, _, err = l.TryLock(context.Background(), k)
					} else if n%100 == 0 {
						var keys []advisory.Key
						for j := range 100 {
							keys = append(keys, advisory.Pair(int32(8*i+g), int32(n+j)))
						}
						_, _, err = l.TryLockAll(context.Background(), keys)
					}
					if harness.IsFull(err) {
						full.Add(1)
						return
					} else if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	was := connected.Load()
	harness.Eventually(t, "others go on", func() bool { return connected.Load() > was+5 || t.Failed() })
	close(stop)
	others.Wait()
	sum := 0
	for i, l := range lockers {
		st := l.Stats()
		t.Logf("%s: %+v", harness.Drivers[i%2].Name, st)
		sum += st.Held
	}
	t.Logf("%d locks in a table of %d; %d calls were told that it is full; others connected %d times", sum, table, full.Load(), connected.Load())
	if full.Load() == 0 {
		t.Error("nobody was told that the lock table is full")
	}
	if sum < table/2 || sum > table+table/2 {
		t.Error("they hold too few or too many")
	}
}

// Any number of locks is held by few connections and in little memory.
func TestTenThousandLocks(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t, "max_locks_per_transaction=256", "max_connections=100")
	for _, d := range harness.Drivers[:2] {
		t.Run(d.Name, func(t *testing.T) {
			p := d.Open(t, server.Database(t))
			p.SetMaxOpenConns(5)
			l := p.Locker(t)
			if err := l.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			before := heap()
			const n = 10_000
			locks := make(advisory.Locks, n)
			var wg sync.WaitGroup
			for g := range 100 {
				wg.Go(func() {
					for i := g; i < n; i += 100 {
						lock, ok, err := l.TryLock(context.Background(), advisory.Int64(int64(i)))
						if !ok || err != nil {
							t.Error(ok, err)
							return
						}
						locks[i] = lock
					}
				})
			}
			wg.Wait()
			used := heap() - before
			held, _ := p.Locks(t)
			t.Logf("%d locks, %d connections, %.1f MiB of client memory", held, p.Stats().OpenConnections, float64(used)/(1<<20))
			if held != n || p.Stats().OpenConnections > 2 {
				t.Errorf("%d locks, %d connections", held, p.Stats().OpenConnections)
			}
			if t.Failed() {
				return
			}
			if err := locks.Unlock(); err != nil {
				t.Error(err)
			}
			p.NoLocks(t)
		})
	}
}

// heap is how much memory is in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
