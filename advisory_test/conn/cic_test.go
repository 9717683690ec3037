package conn_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// CREATE INDEX CONCURRENTLY waits for every transaction that might not see the new
// index. If the holder of a lock runs it, and that waits for those who wait for the
// lock, it is a deadlock.
func TestCreateIndexConcurrentlyBesideWaiters(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel() // on a server of its own
	server := pgtest.NewServer(t, "max_connections=200", "log_min_messages=warning")
	harness.SeesComplaints(t, server)
	t.Run("blocking waiter", func(t *testing.T) { plainWaiterIsInTheWay(t, server) })

	harness.EachAtOnce(t, server.Database, func(t *testing.T, p *harness.Pool) {
		harness.DoSQL(t, p, "CREATE TABLE items AS SELECT n FROM generate_series(1, 1000) n")
		holder := p.NewConn(t)
		// A transaction that goes on may be come upon in the middle of a try. Then its end
		// is waited for: if it is the holder who waits that is a deadlock, and is told.
		createIndexes(p, t, holder, "by_holder", holder)
		createIndexes(p, t, holder, "by_a_third", p, advisory.MaxWait(4*time.Second))
		harness.Silent(t, server, p)
	})
}

// createIndexes creates indexes by by, while holder holds the key and four of each kind, with
// opts in transactions that go on, wait for it.
func createIndexes(p *harness.Pool, t *testing.T, holder sqlconn.Conn, name string, by interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, opts ...advisory.Option,
) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*harness.Patience)
	defer cancel()
	harness.TryLock(t, holder, harness.Key)
	var again atomic.Int64
	waiters := waitingBy(p, t, 4, func(kind waitKind) error {
		if kind.sliced {
			return kind.wait(ctx, p, harness.Key, func() {})
		}
		for {
			err := kind.wait(ctx, p, harness.Key, func() {}, opts...)
			if ctx.Err() != nil || !errors.Is(err, advisory.ErrDeadlock) && (len(opts) == 0 || !errors.Is(err, advisory.ErrNotAcquired)) {
				return err
			}
			again.Add(1)
		}
	})
	var times harness.Spread
	for i := range 3 * harness.Rounds(t) {
		start := time.Now()
		if _, err := by.ExecContext(ctx, fmt.Sprintf("CREATE INDEX CONCURRENTLY %s_%d ON items (n)", name, i)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		times = append(times, time.Since(start))
	}
	t.Logf("%s: %v; transactions that go on began again %d times", name, times, again.Load())
	if n := harness.Ask[int](t, p, "SELECT count(*) FILTER (WHERE NOT indisvalid) FROM pg_index"); n > 0 {
		t.Errorf("%s: %d indexes are not valid", name, n)
	}
	if held, _ := p.Locks(t); held < 1 {
		t.Errorf("%s: the holder has lost its lock", name)
	}
	harness.Eventually(t, "all still wait", func() bool { return doWaiters(p, t) == 4*len(kinds) })
	harness.Unlock(t, holder, harness.Key)
	if err := waiters.Wait(); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	p.NoLocks(t)
}

// plainWaiterIsInTheWay shows what the others do not do.
func plainWaiterIsInTheWay(t *testing.T, server *pgtest.Server) {
	p := harness.Drivers[0].Open(t, server.Database(t))
	harness.DoSQL(t, p, "CREATE TABLE items AS SELECT n FROM generate_series(1, 1000) n")
	holder, waiter := p.NewConn(t), p.NewConn(t)
	harness.DoSQL(t, holder, "SELECT pg_advisory_lock(4820)")
	waited := make(chan error, 1)
	go func() {
		_, err := waiter.ExecContext(context.Background(), "SELECT pg_advisory_lock(4820)")
		waited <- err
	}()
	harness.Eventually(t, "it waits", func() bool { _, waiting := p.Locks(t); return waiting == 1 })

	start := time.Now()
	_, err := holder.ExecContext(t.Context(), "CREATE INDEX CONCURRENTLY by_holder ON items (n)")
	took := time.Since(start)
	harness.DoSQL(t, holder, "SELECT pg_advisory_unlock(4820)")
	werr := <-waited
	t.Logf("after %v: CREATE INDEX CONCURRENTLY: %v; the waiter: %v", harness.Round(took), err, werr)
	if !strings.Contains(fmt.Sprint(err, werr), "deadlock detected") {
		t.Error("no deadlock")
	}
	if !strings.Contains(strings.Join(harness.Complaints(t, server, p), "\n"), "deadlock detected") {
		t.Error("no deadlock in the log")
	}
}
