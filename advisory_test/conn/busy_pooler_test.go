package conn_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/pgbouncer"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// PgBouncer refuses a client that has waited for query_wait_timeout. Another attempt would wait again.
// lib/pq does not show that the connection was refused: Do makes no more attempts than database/sql.
func TestBusyPoolerIsNotAskedAgain(t *testing.T) {
	server := pgtest.URL(t)
	for most, d := range map[int]harness.Driver{3: harness.Drivers[0], 1: harness.Drivers[1]} {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			p := d.Open(t, pgbouncer.New(t, server, pgbouncer.Options{Mode: pgbouncer.Session, PoolSize: 1, Settings: []string{"query_wait_timeout = 0.1"}}))
			harness.Eventually(t, "a connection has the only session", func() bool {
				conn, err := p.DB.Conn(context.Background())
				if err == nil {
					t.Cleanup(func() { conn.Close() })
					_, err = conn.ExecContext(context.Background(), "SELECT 1")
				}
				return err == nil
			})
			n := 0
			open := func(ctx context.Context) (*sql.Conn, error) { n++; return p.DB.Conn(ctx) }
			err := sqlconn.Do(t.Context(), open, harness.Key, func(context.Context, *sql.Conn) error { return nil }, sqlconn.SessionPooler())
			if err == nil || n > most {
				t.Errorf("opened %d connections: %v", n, err)
			}
		})
	}
}
