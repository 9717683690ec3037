package conn_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	known "github.com/pgadvisory/pgadvisory/internal/drivers"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/proxy"
	"github.com/pgadvisory/pgadvisory/internal/pooler"
	"github.com/pgadvisory/pgadvisory/internal/sqlprivate"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// withoutPrivateFields runs a test as with a release of Go that has renamed the private fields which
// the library reads.
func withoutPrivateFields(t *testing.T, test func(t *testing.T)) {
	t.Cleanup(sqlprivate.Forget())
	t.Run("without", test)
}

// Answers are right when it is not known whether rows are open, nor on which driver a transaction is.
func TestOpenRowsWithoutPrivateFields(t *testing.T) { withoutPrivateFields(t, TestCallsWithOpenRows) }

// What a call costs then is at most three round trips more, and its answer is the same.
func TestRoundTripsWithoutPrivateFields(t *testing.T) {
	withoutPrivateFields(t, func(t *testing.T) {
		ctx := context.Background()
		noWork := func(context.Context, xact.Tx) error { return nil }
		harness.EachDriverProxied(t, func(t *testing.T, p *harness.Pool, link *proxy.Proxy) {
			m := meter{t, link, p.NewConn(t)}
			busy := advisory.Name("busy")
			harness.TryLock(m, p.NewConn(m), busy)
			most := 0
			costs := func(usual int, what string, f func()) {
				m.link.Reset()
				f()
				more := m.link.Stats().RoundTrips - usual
				if more < 0 || more > 3 {
					m.Errorf("%s: %d round trips more", what, more)
				}
				most = max(most, more)
			}
			ok := func(err error) {
				m.Helper()
				if err != nil {
					m.Error(err)
				}
			}
			costs(2, "the first TryLock on a connection", func() { m.is(true)(sqlconn.TryLock(ctx, m.conn, harness.Key)) })
			costs(1, "Unlock", func() { ok(sqlconn.Unlock(ctx, m.conn, harness.Key)) })
			costs(1, "TryLock", func() { m.is(true)(sqlconn.TryLock(ctx, m.conn, harness.Key)) })
			costs(1, "UnlockAll", func() { ok(sqlconn.UnlockAll(ctx, m.conn)) })
			costs(1, "TryLock of a busy key", func() { m.is(false)(sqlconn.TryLock(ctx, m.conn, busy)) })
			costs(1, "Lock", func() { ok(sqlconn.Lock(ctx, m.conn, harness.Key)) })
			ok(sqlconn.Unlock(ctx, m.conn, harness.Key))
			m.Tx(func(tx xact.Tx) {
				costs(1, "xact.TryLock", func() { m.is(true)(xact.TryLock(ctx, tx, harness.Key)) })
				costs(1, "xact.TryLock of a busy key", func() { m.is(false)(xact.TryLock(ctx, tx, busy)) })
				costs(1, "xact.Lock", func() { ok(xact.Lock(ctx, tx, advisory.Int64(7))) })
				costs(2, "xact.TryLockAll", func() { m.is(false)(xact.TryLockAll(ctx, tx, []advisory.Key{advisory.Int64(8), busy})) })
			})
			costs(3, "xact.TryDo", func() { m.is(true)(xact.TryDo(ctx, m.Begin, harness.Key, noWork)) })
			costs(4, "xact.Do at SERIALIZABLE", func() {
				ok(xact.Do(ctx, m.Begin, harness.Key, noWork, xact.TxOptions(&sql.TxOptions{Isolation: sql.LevelSerializable})))
			})
			m.Logf("at most %d round trips more", most)
		})
	})
}

// Both drivers show what they are, through the ways that database/sql has, and the pid that their
// connection was given. If one does not, transactions on it cost round trips more and a connection is
// not compared with its session: see docs/guarantees.md.
func TestStandardDriversShowWhatTheyAre(t *testing.T) {
	kinds := map[string]known.Kind{"postgres": known.PQ, "pgx": known.PGX}
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		conn, tx := p.NewConn(t), p.Tx(t, nil)
		if k := known.OfTx(tx); k != kinds[p.By.Sql] {
			t.Errorf("the driver below a transaction is %v", k)
		}
		pid := harness.Ask[int64](t, conn, "SELECT pg_catalog.pg_backend_pid()")
		err := conn.Raw(func(driverConn any) error {
			if k := known.Of(driverConn); k != kinds[p.By.Sql] {
				t.Errorf("the driver of a connection is %v", k)
			}
			if physical := pooler.PhysicalOf(driverConn); !physical.Told || physical.PID != pid {
				t.Errorf("%T, as go.mod has it, shows the pid %d (%v), want %d: internal/pooler reads it from where the driver keeps it",
					driverConn, physical.PID, physical.Told, pid)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
