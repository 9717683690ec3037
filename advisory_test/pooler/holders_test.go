package pooler_test

import (
	"context"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/pgbouncer"
	"github.com/pgadvisory/pgadvisory/xact"
)

// Behind a pooler in transaction mode a transaction is usable after a call has asked who holds the key:
// a try, and a wait that reports itself. It is so if the driver has prepared the query on a session that
// the pooler has since changed; then nobody learns who holds the key.
func TestHoldersInATransactionBehindAPooler(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	serverURL := pgtest.URL(t)
	how := harness.Pooling{Options: pgbouncer.Options{Mode: pgbouncer.Transaction, PoolSize: 2, RoundRobin: true}, Clients: 0}
	url := how.Start(t, serverURL)
	direct := harness.Drivers[0].Open(t, serverURL)
	holder := direct.NewConn(t)
	harness.TryLock(t, holder, harness.Key)
	try := func(name string, d harness.Driver, url string) {
		prepares := strings.Contains(name, "cache_statement") // on a session that is not there any more
		t.Run(name, func(t *testing.T) {
			p := d.Open(t, url)
			p.SetMaxOpenConns(3)
			for range 12 {
				tx, err := p.NewTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				var hs []advisory.Holder
				if ok, err := xact.TryLock(t.Context(), tx, harness.Key, advisory.HoldersTo(&hs)); ok || err != nil || len(hs) != 1 && !prepares {
					t.Errorf("%v, %v, %v", ok, err, hs)
				}
				events, err := harness.UntilWaiting(t.Context(), func(ctx context.Context, opts ...advisory.Option) error {
					return xact.Lock(ctx, tx, harness.Key, harness.OptionsAs[advisory.TxOption](opts)...)
				})
				harness.IsErr(t, err, advisory.ErrNotAcquired)
				if len(events) < 2 || len(events[0].Holders) != 1 && !prepares {
					t.Errorf("%+v", events)
				}
				if _, err := tx.ExecContext(context.Background(), "SELECT 1"); err != nil {
					t.Errorf("the transaction cannot be used: %v", err)
				}
				tx.Rollback()
				p.Exec("SELECT 1") // on the other session
			}
		})
	}
	try("pq", harness.Drivers[0], url)
	for _, mode := range pgxModes {
		try("pgx "+mode, harness.Drivers[1], harness.WithParameter(t, url, "default_query_exec_mode", mode))
	}
}
