package pooler_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/pgbouncer"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// The check of a pool needs two connections. While that of a full pool waits for the second, other
// pools are checked.
func TestCheckOfAFullPoolHoldsUpNoOtherPool(t *testing.T) {
	server := pgtest.URL(t)
	open := func() *harness.Pool {
		return harness.Drivers[0].Open(t, pgbouncer.New(t, server, pgbouncer.Options{Mode: pgbouncer.Session}))
	}
	full, well := open(), open()
	full.SetMaxOpenConns(1)
	nothing := func(context.Context, *sql.Conn) error { return nil }
	ctx, end := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	over := make(chan error, 1)
	wg.Go(func() { over <- sqlconn.Do(ctx, full.DB.Conn, harness.Key, nothing) })
	harness.Eventually(t, "the check waits for a second connection", func() bool { return full.Stats().WaitCount > 0 })

	if err := sqlconn.Do(t.Context(), well.DB.Conn, harness.Key, nothing); err != nil {
		t.Errorf("the other pool: %v", err)
	}
	select {
	case err := <-over:
		t.Errorf("the other pool had to wait for the end of the check: %v", err)
	default:
	}
}
