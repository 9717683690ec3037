package conn_test

import (
	"context"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// Where the server's lock table is full a try and a wait say so, and once there is room again the
// connection goes on as before.
func TestFullLockTableIsToldOnAConnectionAndInATransaction(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t, "max_locks_per_transaction=10", "max_connections=20",
		"autovacuum=off", "max_worker_processes=1", "max_wal_senders=0")
	ctx := context.Background()
	for _, d := range harness.Drivers {
		t.Run(d.Name, func(t *testing.T) {
			p := d.Open(t, server.Database(t))
			conn, tx := p.NewConn(t), p.Tx(t, nil)
			pid := harness.SessionOf(t, conn)
			harness.SessionOf(t, tx)
			var full error
			for n := int64(1); full == nil; n++ {
				if _, full = sqlconn.TryLock(ctx, conn, advisory.Int64(n)); n > 10_000 {
					t.Fatal("it is never full")
				}
			}
			next := advisory.Int64(1 << 40)
			for what, err := range map[string]error{
				"sqlconn.TryLock": full,
				"sqlconn.Lock":    sqlconn.Lock(ctx, conn, next),
				"xact.Lock":       xact.Lock(ctx, tx, next),
			} {
				if !harness.IsFull(err) {
					t.Errorf("%s: %v", what, err)
				}
			}
			tx.Rollback()
			if err := sqlconn.UnlockAll(ctx, conn); err != nil {
				t.Error(err)
			}
			if !harness.TryLock(t, conn, next) || harness.SessionOf(t, conn) != pid {
				t.Error("the connection does not go on as before")
			}
			harness.Unlock(t, conn, next)
			p.NoLocks(t)
		})
	}
}
