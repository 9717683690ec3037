package advisory_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// CREATE INDEX CONCURRENTLY waits for every transaction that might not see the new
// index. If the holder of a lock runs it, and that waits for those who wait for the
// lock, it is a deadlock.
func TestCreateIndexConcurrentlyBesideWaiters(t *testing.T) {
	server := pgtest.NewServer(t, "max_connections=200", "log_min_messages=warning")
	seesComplaints(t, server)
	t.Run("blocking waiter", func(t *testing.T) { plainWaiterIsInTheWay(t, server) })

	eachAtOnce(t, server.Database, func(t *testing.T, p *pool) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		doSQL(t, p, "CREATE TABLE items AS SELECT n FROM generate_series(1, 1000) n")
		holder := p.conn(t)
		tryLock(t, holder, key)
		waiters := p.waiting(ctx, t, 4, key)

		for i := range 2 * rounds(t) {
			start := time.Now()
			if _, err := holder.ExecContext(ctx, fmt.Sprintf("CREATE INDEX CONCURRENTLY by_holder_%d ON items (n)", i)); err != nil {
				t.Fatalf("by the holder: %v", err)
			}
			t.Logf("by the holder: %v", round(time.Since(start)))
			start = time.Now()
			if _, err := p.ExecContext(ctx, fmt.Sprintf("CREATE INDEX CONCURRENTLY by_a_third_%d ON items (n)", i)); err != nil {
				t.Fatalf("by a third session: %v", err)
			}
			t.Logf("by a third session: %v", round(time.Since(start)))
		}
		if n := ask[int](t, p, "SELECT count(*) FILTER (WHERE NOT indisvalid) FROM pg_index"); n > 0 {
			t.Errorf("%d indexes are not valid", n)
		}
		if held, _ := p.locks(t); held < 1 {
			t.Error("the holder has lost its lock")
		}
		if n := p.waiters(t); n != 4*len(kinds) {
			t.Errorf("%d sessions still wait, of %d", n, 4*len(kinds))
		}
		unlock(t, holder, key)
		if err := waiters.Wait(); err != nil {
			t.Error(err)
		}
		p.noLocks(t)
		silent(t, server, p)
	})
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
