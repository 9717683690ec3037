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
				if held != 1 || !p.hasSession(t, pid) {
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

// hasSession asks past the pool whether the server has a session.
func (p *pool) hasSession(t testing.TB, pid int) bool {
	t.Helper()
	db, err := sql.Open("postgres", p.url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	return ask[bool](t, db, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", pid)
}

// noSession fails the test unless a session ends.
func (p *pool) noSession(t testing.TB, pid int) {
	t.Helper()
	eventually(t, "the session has ended", func() bool { return !p.hasSession(t, pid) })
}
