package harness

import (
	"context"
	"database/sql"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
)

// AllPools are the drivers, and a *sql.DB on a pgxpool: what the one closes goes back to
// the other.
var AllPools = append(slices.Clip(Drivers), Driver{Name: "pgxpool", Sql: "pgx", Pgxpool: true})

func (d Driver) openPgxpool(t testing.TB, url string) *Pool {
	t.Helper()
	below, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(below.Close)
	db := stdlib.OpenDBFromPool(below)
	t.Cleanup(func() { db.Close() })
	return &Pool{DB: db, By: d, Url: url, X: sqlx.NewDb(db, d.Sql), Below: below}
}

// pooled is how many connections are in the pool, or in the one below.
func (p *Pool) pooled() int {
	if p.Below != nil {
		return int(p.Below.Stat().IdleConns())
	}
	return p.Stats().OpenConnections
}

func SessionOf(t testing.TB, on interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
},
) int {
	t.Helper()
	return Ask[int](t, on, "SELECT pg_backend_pid()")
}
