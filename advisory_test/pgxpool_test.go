package advisory_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// allPools are the drivers, and a *sql.DB on a pgxpool: what the one closes goes back to
// the other.
var allPools = append(slices.Clip(drivers), driver{name: "pgxpool", sql: "pgx", pgxpool: true})

func (d driver) openPgxpool(t testing.TB, url string) *pool {
	t.Helper()
	below, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(below.Close)
	db := stdlib.OpenDBFromPool(below)
	t.Cleanup(func() { db.Close() })
	return &pool{DB: db, driver: d, url: url, x: sqlx.NewDb(db, d.sql), below: below}
}

// pooled is how many connections are in the pool, or in the one below.
func (p *pool) pooled() int {
	if p.below != nil {
		return int(p.below.Stat().IdleConns())
	}
	return p.Stats().OpenConnections
}

// To close a connection the way that database/sql offers is not enough everywhere: so
// the checks that a lock has gone with its connection can see one that has not.
func TestNaiveDiscardKeepsTheLockInAPgxpool(t *testing.T) {
	pgtest.Slow(t)
	for _, d := range allPools {
		t.Run(d.name, func(t *testing.T) {
			p := d.open(t, pgtest.URL(t))
			conn := p.conn(t)
			pid := sessionOf(t, conn)
			tryLock(t, conn, key)
			conn.Raw(func(any) error { return sqldriver.ErrBadConn })
			conn.Close()
			if d.pgxpool {
				held, _ := p.locks(t)
				if held != 1 || !hasSession(t, drivers[0].open(t, p.url), pid) {
					t.Errorf("%d locks are held: it has become easy to discard a connection of a pgxpool", held)
				}
				return
			}
			p.noLocks(t)
			p.noSession(t, pid)
		})
	}
}

func sessionOf(t testing.TB, on interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}) int {
	t.Helper()
	return ask[int](t, on, "SELECT pg_backend_pid()")
}

// noSession fails the test unless a session ends. It asks past the pool.
func (p *pool) noSession(t testing.TB, pid int) {
	t.Helper()
	watch := drivers[0].open(t, p.url)
	eventually(t, "the session has ended", func() bool { return !hasSession(t, watch, pid) })
}

func hasSession(t testing.TB, watch *pool, pid int) bool {
	t.Helper()
	return ask[bool](t, watch, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", pid)
}
