package conn_test

import (
	sqldriver "database/sql/driver"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// To close a connection the way that database/sql offers is not enough everywhere: so
// the checks that a lock has gone with its connection can see one that has not.
func TestNaiveDiscardKeepsTheLockInAPgxpool(t *testing.T) {
	pgtest.Slow(t)
	for _, d := range harness.AllPools {
		t.Run(d.Name, func(t *testing.T) {
			p := d.Open(t, pgtest.URL(t))
			conn := p.NewConn(t)
			pid := harness.SessionOf(t, conn)
			harness.TryLock(t, conn, harness.Key)
			conn.Raw(func(any) error { return sqldriver.ErrBadConn })
			conn.Close()
			if d.Pgxpool {
				held, _ := p.Locks(t)
				if held != 1 || !hasSession(t, harness.Drivers[0].Open(t, p.Url), pid) {
					t.Errorf("%d locks are held: it has become easy to discard a connection of a pgxpool", held)
				}
				return
			}
			p.NoLocks(t)
			noSession(p, t, pid)
		})
	}
}

// noSession fails the test unless a session ends. It asks past the pool.
func noSession(p *harness.Pool, t testing.TB, pid int) {
	t.Helper()
	watch := harness.Drivers[0].Open(t, p.Url)
	harness.Eventually(t, "the session has ended", func() bool { return !hasSession(t, watch, pid) })
}

func hasSession(t testing.TB, watch *harness.Pool, pid int) bool {
	t.Helper()
	return harness.Ask[bool](t, watch, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", pid)
}
