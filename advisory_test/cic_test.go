package advisory_test

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
	seesComplaints(t, server)
	t.Run("blocking waiter", func(t *testing.T) { plainWaiterIsInTheWay(t, server) })

	eachAtOnce(t, server.Database, func(t *testing.T, p *pool) {
		doSQL(t, p, "CREATE TABLE items AS SELECT n FROM generate_series(1, 1000) n")
		holder := p.conn(t)
		// A transaction that goes on may be come upon in the middle of a try. Then its end
		// is waited for: if it is the holder who waits that is a deadlock, and is told.
		p.createIndexes(t, holder, "by_holder", holder)
		p.createIndexes(t, holder, "by_a_third", p, advisory.MaxWait(4*time.Second))
		silent(t, server, p)
	})
}

// createIndexes creates indexes by by, while holder holds the key and four of each kind, with
// opts in transactions that go on, wait for it.
func (p *pool) createIndexes(t *testing.T, holder sqlconn.Conn, name string, by interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, opts ...advisory.Option) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	tryLock(t, holder, key)
	var again atomic.Int64
	waiters := p.waitingBy(t, 4, func(kind waitKind) error {
		if kind.sliced {
			return kind.wait(ctx, p, key, func() {})
		}
		for {
			err := kind.wait(ctx, p, key, func() {}, opts...)
			if ctx.Err() != nil || !errors.Is(err, advisory.ErrDeadlock) && (len(opts) == 0 || !errors.Is(err, advisory.ErrNotAcquired)) {
				return err
			}
			again.Add(1)
		}
	})
	var times spread
	for i := range 3 * rounds(t) {
		start := time.Now()
		if _, err := by.ExecContext(ctx, fmt.Sprintf("CREATE INDEX CONCURRENTLY %s_%d ON items (n)", name, i)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		times = append(times, time.Since(start))
	}
	t.Logf("%s: %v; transactions that go on began again %d times", name, times, again.Load())
	if n := ask[int](t, p, "SELECT count(*) FILTER (WHERE NOT indisvalid) FROM pg_index"); n > 0 {
		t.Errorf("%s: %d indexes are not valid", name, n)
	}
	if held, _ := p.locks(t); held < 1 {
		t.Errorf("%s: the holder has lost its lock", name)
	}
	eventually(t, "all still wait", func() bool { return p.waiters(t) == 4*len(kinds) })
	unlock(t, holder, key)
	if err := waiters.Wait(); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	p.noLocks(t)
}

// plainWaiterIsInTheWay shows what the others do not do.
func plainWaiterIsInTheWay(t *testing.T, server *pgtest.Server) {
	p := drivers[0].open(t, server.Database(t))
	doSQL(t, p, "CREATE TABLE items AS SELECT n FROM generate_series(1, 1000) n")
	holder, waiter := p.conn(t), p.conn(t)
	doSQL(t, holder, "SELECT pg_advisory_lock(4820)")
	waited := make(chan error, 1)
	go func() {
		_, err := waiter.ExecContext(context.Background(), "SELECT pg_advisory_lock(4820)")
		waited <- err
	}()
	eventually(t, "it waits", func() bool { _, waiting := p.locks(t); return waiting == 1 })

	start := time.Now()
	_, err := holder.ExecContext(t.Context(), "CREATE INDEX CONCURRENTLY by_holder ON items (n)")
	took := time.Since(start)
	doSQL(t, holder, "SELECT pg_advisory_unlock(4820)")
	werr := <-waited
	t.Logf("after %v: CREATE INDEX CONCURRENTLY: %v; the waiter: %v", round(took), err, werr)
	if !strings.Contains(fmt.Sprint(err, werr), "deadlock detected") {
		t.Error("no deadlock")
	}
	if !strings.Contains(strings.Join(complaints(t, server, p), "\n"), "deadlock detected") {
		t.Error("no deadlock in the log")
	}
}
