package conn_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// However waits and tries end, the server writes nothing into its log.
func TestTheServersLogStaysSilent(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel() // on a server of its own
	server := pgtest.NewServer(t, "max_connections=200", "log_min_messages=warning")
	harness.SeesComplaints(t, server)
	harness.EachAtOnce(t, server.Database, func(t *testing.T, p *harness.Pool) {
		holder := p.NewConn(t)
		harness.TryLock(t, holder, harness.Key)
		var wg sync.WaitGroup
		for _, kind := range kinds {
			for _, m := range harness.Modes {
				wg.Go(func() { // its time is over: within the first slice, between two, at once
					for _, d := range []time.Duration{0, 30 * time.Millisecond, 700 * time.Millisecond} {
						err := kind.wait(context.Background(), p, harness.Key, func() {}, m, advisory.MaxWait(d))
						if !errors.Is(err, advisory.ErrNotAcquired) {
							t.Errorf("%s: MaxWait(%v): %v", kind.name, d, err)
						}
					}
				})
				wg.Go(func() { // cancelled by the caller
					ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
					defer cancel()
					if err := kind.wait(ctx, p, harness.Key, func() {}, m); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s: cancelled: %v", kind.name, err)
					}
				})
			}
		}
		for range 3 * harness.Rounds(t) {
			tries(p, t)
		}
		wg.Wait()

		for _, kind := range kinds { // cancelled by an operator
			if !kind.sliced {
				continue
			}
			done := make(chan error, 1)
			go func() { done <- kind.wait(context.Background(), p, harness.Key, func() {}) }()
			harness.Eventually(t, "a wait is cancelled", func() bool {
				return harness.Ask[int](t, p, `SELECT count(pg_cancel_backend(l.pid)) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
					WHERE a.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted
					AND clock_timestamp() - a.query_start BETWEEN '1ms' AND '200ms'`) > 0 // not at the end of a slice
			})
			if err := <-done; err == nil || !strings.Contains(err.Error(), "canceled on the server") {
				t.Errorf("%s: pg_cancel_backend: %v", kind.name, err)
			}
		}

		waiters := waiting(p, context.Background(), t, 2, harness.Key) // who get it
		harness.Unlock(t, holder, harness.Key)
		if err := waiters.Wait(); err != nil {
			t.Error(err)
		}
		p.NoLocks(t)
		harness.Silent(t, server, p)
	})
}

// tries makes tries of every kind, of a key that is taken and of one that is free.
func tries(p *harness.Pool, t testing.TB) {
	t.Helper()
	for _, m := range harness.Modes {
		ctx := context.Background()
		for _, k := range []advisory.Key{harness.Key, advisory.Name("nobody's")} {
			free := k != harness.Key
			is := func(what string, got bool, err error) {
				t.Helper()
				if got != free || err != nil {
					t.Errorf("%s: %v, %v", what, got, err)
				}
			}
			conn := p.NewConn(t)
			got, err := sqlconn.TryLock(ctx, conn, k, m)
			is("sqlconn.TryLock", got, err)
			if got {
				harness.Unlock(t, conn, k, m)
			}
			conn.Close()
			got, err = p.TryDo(ctx, k, func(context.Context, sqlconn.Conn) error { return nil }, m)
			is("sqlconn.TryDo", got, err)
			got, err = p.TxTryDo(ctx, k, func(context.Context, xact.Tx) error { return nil }, m)
			is("xact.TryDo", got, err)
			tx := p.Tx(t, nil)
			got, err = xact.TryLockAll(ctx, tx, []advisory.Key{k, advisory.Pair(1, 1)}, m)
			is("xact.TryLockAll", got, err)
			tx.Rollback()
			tx = p.Tx(t, nil)
			_, got, err = xact.TryLockAny(ctx, tx, []advisory.Key{k}, m)
			is("xact.TryLockAny", got, err)
			tx.Rollback()
			tx = p.Tx(t, nil)
			got, err = xact.TryLock(ctx, tx, k, m)
			is("xact.TryLock", got, err)
			tx.Rollback()
		}
	}
}
