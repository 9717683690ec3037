package locker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// Lockers that wait, in long slices, are in nobody's way: CREATE INDEX CONCURRENTLY, by the
// session that holds the lock and by another, waits for none of them.
func TestLockersThatWaitAreInNobodysWay(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	// A server that sees a deadlock later than by default: this machine may be slow.
	server := pgtest.NewServer(t, "deadlock_timeout=5s", "log_lock_waits=on")
	harness.AtOnce(t, func(all *harness.Together) {
		for _, d := range harness.Drivers[:2] {
			all.Start(d.Name, func(t *testing.T) { waitInNobodysWay(t, d, server) })
		}
	})
	for line := range strings.Lines(server.Log()) {
		if strings.Contains(line, "still waiting for ShareLock on virtual transaction") || strings.Contains(line, "detected deadlock while waiting") {
			t.Errorf("in somebody's way for %v: %s", 5*time.Second, line)
		}
	}
}

func waitInNobodysWay(t *testing.T, d harness.Driver, server *pgtest.Server) {
	p := d.Open(t, server.Database(t))
	harness.DoSQL(t, p, "CREATE TABLE items AS SELECT n FROM generate_series(1, 1000) n")
	holder := p.NewConn(t)
	harness.TryLock(t, holder, harness.Key)
	var waiting sync.WaitGroup
	for _, name := range []string{"idle", "busy", "bereft"} {
		l := p.Locker(t, locker.WithApplicationName(name), locker.WithFailover(time.Minute)) // in slices of 8 s
		for _, m := range harness.Modes {
			waiting.Go(func() {
				lock, err := l.Lock(context.Background(), harness.Key, m)
				if err == nil {
					err = lock.Unlock()
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		if name == "busy" { // its sessions have no time for anything else
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			for g := range 4 {
				go func() {
					for ctx.Err() == nil {
						if lock, ok, _ := l.TryLock(context.Background(), advisory.Pair(1, int32(g))); ok {
							lock.Unlock()
						}
					}
				}()
			}
		}
	}
	waits := func(n int) {
		t.Helper()
		harness.Eventually(t, "all wait", func() bool { _, w := p.Locks(t); return w == n })
	}
	waits(3)
	// One loses the session that takes the locks which are free; the other still waits.
	if n := harness.Ask[int](t, p, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE application_name = 'bereft' AND datname = current_database() AND state = 'idle'`); n != 1 {
		t.Fatalf("%d sessions were terminated", n)
	}
	time.Sleep(2 * harness.Heartbeat) // it is told

	for i := range 2 {
		for who, by := range map[string]sqlconn.Conn{"the holder": holder, "a third": p.NewConn(t)} {
			waits(3)
			start := time.Now()
			if _, err := by.ExecContext(context.Background(), fmt.Sprintf("CREATE INDEX CONCURRENTLY i%d_%d ON items (n)", i, len(who))); err != nil {
				t.Errorf("by %s: %v", who, err)
			}
			t.Logf("CREATE INDEX CONCURRENTLY by %s: %v", who, time.Since(start).Round(time.Millisecond))
		}
	}
	if n := harness.Ask[int](t, p, "SELECT count(*) FILTER (WHERE NOT indisvalid) FROM pg_index"); n > 0 {
		t.Errorf("%d indexes are not valid", n)
	}
	harness.Unlock(t, holder, harness.Key)
	waiting.Wait()
	harness.Eventually(t, "none of them waits", func() bool { _, w := p.Locks(t); return w == 0 })
	for _, line := range harness.Complaints(t, server, p) {
		if !strings.Contains(line, "/bereft FATAL:  terminating connection") {
			t.Errorf("in the server's log: %s", line)
		}
	}
}

// What a waiter sees of the data, and keeps from vacuum, does not get old: each slice begins
// anew.
func TestSlicesOfALockerEnd(t *testing.T) {
	pgtest.Slow(t)
	harness.Fair(t, func(t *testing.T, p *harness.Pool) {
		holder := p.NewConn(t)
		harness.TryLock(t, holder, harness.Key)
		l := p.Locker(t, locker.WithFailover(harness.QuickFailover)) // slices of half a second
		ctx, cancel := context.WithCancel(t.Context())
		go l.Lock(ctx, harness.Key)
		defer cancel()
		begun := func() string {
			return harness.Ask[string](t, p, `SELECT coalesce(min(xact_start)::text, '') FROM pg_stat_activity
				WHERE datname = current_database() AND query LIKE '/*pgadvisory waits%' AND backend_xmin IS NOT NULL`)
		}
		for range 3 {
			var first string
			harness.Eventually(t, "it waits", func() bool { first = begun(); return first != "" })
			harness.Eventually(t, "it waits with another snapshot", func() bool { now := begun(); return now > first })
		}
	})
}

// The server looks for a deadlock once, some time after a wait began. If CREATE INDEX
// CONCURRENTLY by the holder waits for the slice at that moment, it looks like one, but
// is none.
func TestNoDeadlockIsToldThatIsNone(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t, "deadlock_timeout=2500ms") // in the middle between two pings
	p := harness.Drivers[0].Open(t, server.Database(t))
	harness.DoSQL(t, p, "CREATE TABLE items AS SELECT n FROM generate_series(1, 1000) n")
	holder := p.NewConn(t)
	harness.TryLock(t, holder, harness.Key)
	l := p.Locker(t, locker.WithHeartbeat(990*time.Millisecond)) // its guard comes too late
	got := make(chan error, 1)
	go func() {
		lock, err := l.Lock(context.Background(), harness.Key)
		if err == nil {
			err = lock.Unlock()
		}
		got <- err
	}()
	for i := range 3 {
		harness.Eventually(t, "it is in the middle of a slice", func() bool {
			return harness.Ask[bool](t, p, `SELECT coalesce(max((clock_timestamp() - query_start BETWEEN '2050ms' AND '2250ms')::int), 0)::bool
				FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '/*pgadvisory waits%' AND state = 'active'`)
		})
		if _, err := holder.ExecContext(context.Background(), fmt.Sprintf("CREATE INDEX CONCURRENTLY i%d ON items (n)", i)); err != nil {
			t.Error(err)
		}
		select {
		case err := <-got:
			t.Fatalf("it waits no more: %v", err)
		default:
		}
	}
	harness.Unlock(t, holder, harness.Key)
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// Waits that are given up, at whatever moment, leave nothing in the server's log.
func TestWaitsOfALockerThatEndAreSilent(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t)
	harness.AtOnce(t, func(all *harness.Together) {
		for _, d := range harness.Drivers[:2] {
			all.Start(d.Name, func(t *testing.T) {
				p := d.Open(t, server.Database(t))
				l, other := p.Locker(t), p.Locker(t)
				lock, _ := harness.LockerTry(t, other, harness.Key)
				var wg sync.WaitGroup
				for range 6 {
					wg.Go(func() {
						for i := range 60 {
							longest := []time.Duration{3 * time.Millisecond, 60 * time.Millisecond}[i%2]
							_, err := l.Lock(context.Background(), harness.Key, harness.Modes[rand.N(2)], advisory.MaxWait(rand.N(longest)))
							if !harness.IsNotAcquired(err) {
								t.Error(err)
							}
						}
					})
				}
				wg.Wait()
				if err := lock.Unlock(); err != nil {
					t.Error(err)
				}
				p.NoLocks(t)
				harness.Silent(t, server, p)
			})
		}
	})
}
