package conn_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// A caller that ends ctx and closes its connection while Lock waits on it, and does not wait
// for Lock, leaves no lock in the pool, also if the lock comes just then.
func TestConnClosedWhileLockWaits(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		var sessions []int
		for range 10 {
			// A new pool: the last one may not know yet that its connection is dead.
			holder, conn := p.NewConn(t), p.By.Open(t, p.Url).NewConn(t)
			pid := harness.SessionOf(t, conn)
			harness.TryLock(t, holder, harness.Key)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			locked := make(chan error, 1)
			go func() { locked <- sqlconn.Lock(ctx, conn, harness.Key) }()
			harness.Eventually(t, "it waits", func() bool {
				if len(locked) > 0 {
					t.Fatal(<-locked)
				}
				return harness.Ask[bool](t, p, "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND pid = $1", pid)
			})
			cancel()
			closed := make(chan error, 1)
			go func() { closed <- conn.Close() }()
			time.Sleep(10 * time.Millisecond) // for it to begin; nothing of a *sql.Conn says that
			harness.Unlock(t, holder, harness.Key)
			if err := <-locked; !errors.Is(err, advisory.ErrNotAcquired) {
				t.Fatal(err)
			}
			<-closed
			p.NoLocks(t)
			holder.Close()
			sessions = append(sessions, pid)
		}
		// Most waits are granted meanwhile, and then destroyed.
		harness.Eventually(t, "a lock came while its connection was being closed", func() bool {
			return slices.ContainsFunc(sessions, func(pid int) bool { return !hasSession(t, p, pid) })
		})
	})
}

// The work leaves a statement running on its connection, for longer than a release may take: the
// lock goes with the connection when that ends.
func TestReleaseBehindAStatementThatOutlastsIt(t *testing.T) {
	pgtest.Slow(t)
	const outlasts = "SELECT pg_sleep(4)"
	run := func(t *testing.T, p *harness.Pool, conn sqlconn.Conn) (ended chan struct{}) {
		pid := harness.SessionOf(t, conn)
		ended = make(chan struct{})
		go func() {
			defer close(ended)
			conn.ExecContext(context.Background(), outlasts)
		}()
		harness.Eventually(t, "the statement runs", func() bool {
			return harness.Ask[bool](t, p, "SELECT state = 'active' AND query = $2 FROM pg_stat_activity WHERE pid = $1", pid, outlasts)
		})
		return ended
	}
	test := func(t *testing.T, p *harness.Pool) {
		t.Run("Do", func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var ended chan struct{}
			err := p.Do(ctx, harness.Key, func(_ context.Context, conn sqlconn.Conn) error {
				ended = run(t, p, conn)
				cancel()
				return nil
			})
			if !errors.Is(err, advisory.ErrLost) {
				t.Error(err)
			}
			<-ended
			p.NoLocks(t)
		})
		t.Run("Unlock", func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			conn := p.By.Open(t, p.Url).NewConn(t) // p may not know yet that its connection is dead
			harness.TryLock(t, conn, harness.Key)
			ended := run(t, p, conn)
			cancel()
			err := sqlconn.Unlock(ctx, conn, harness.Key)
			if err == nil {
				t.Error("released")
			}
			conn.Close()
			<-ended
			p.NoLocks(t)
		})
	}
	harness.AtOnce(t, func(all *harness.Together) {
		for _, d := range harness.AllPools {
			all.Start(d.Name, func(t *testing.T) { test(t, d.Open(t, pgtest.URL(t))) })
		}
	})
}
