package advisory_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	_ "github.com/lib/pq"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// A driver is a way to reach the server; each suite runs through each.
type driver struct {
	name string // as subtests have it
	sql  string // as database/sql has it
	sqlx bool   // pass *sqlx.Conn and *sqlx.Tx

	pgxpool bool // there is another pool below database/sql's
}

var drivers = []driver{
	{name: "pq", sql: "postgres"},
	{name: "pgx", sql: "pgx"},
	{name: "sqlx", sql: "postgres", sqlx: true},
}

// eachDriver runs a subtest for each driver, with a fresh database, all at once.
func eachDriver(t *testing.T, test func(t *testing.T, p *pool)) {
	atOnce(t, func(all *together) {
		for _, d := range drivers {
			all.run(d.name, func(t *testing.T) { test(t, d.open(t, pgtest.URL(t))) })
		}
	})
}

// A pool is a *sql.DB, and the calls that take or give a connection or a transaction
// with the types of its driver's flavour.
type pool struct {
	*sql.DB
	driver driver
	url    string
	x      *sqlx.DB
	below  *pgxpool.Pool // if the driver says so
}

func (d driver) open(t testing.TB, url string) *pool {
	t.Helper()
	if d.pgxpool {
		return d.openPgxpool(t, url)
	}
	db, err := sql.Open(d.sql, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &pool{DB: db, driver: d, url: url, x: sqlx.NewDb(db, d.sql)}
}

// conn pins a connection until the end of the test.
func (p *pool) conn(t testing.TB) sqlconn.Conn {
	t.Helper()
	conn, err := p.pin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (p *pool) pin(ctx context.Context) (sqlconn.Conn, error) {
	if p.driver.sqlx {
		return p.x.Connx(ctx)
	}
	return p.DB.Conn(ctx)
}

// tx begins a transaction that is rolled back at the end of the test.
func (p *pool) tx(t testing.TB, o *sql.TxOptions) xact.Tx {
	t.Helper()
	tx, err := p.begin(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

func (p *pool) begin(ctx context.Context, o *sql.TxOptions) (xact.Tx, error) {
	if p.driver.sqlx {
		return p.x.BeginTxx(ctx, o)
	}
	return p.DB.BeginTx(ctx, o)
}

func (p *pool) do(ctx context.Context, key advisory.Key, fn func(context.Context, sqlconn.Conn) error, opts ...advisory.ConnOption) error {
	if p.driver.sqlx {
		return sqlconn.Do(ctx, p.x.Connx, key, func(ctx context.Context, c *sqlx.Conn) error { return fn(ctx, c) }, opts...)
	}
	return sqlconn.Do(ctx, p.DB.Conn, key, func(ctx context.Context, c *sql.Conn) error { return fn(ctx, c) }, opts...)
}

func (p *pool) tryDo(ctx context.Context, key advisory.Key, fn func(context.Context, sqlconn.Conn) error, opts ...advisory.ConnOption) (bool, error) {
	if p.driver.sqlx {
		return sqlconn.TryDo(ctx, p.x.Connx, key, func(ctx context.Context, c *sqlx.Conn) error { return fn(ctx, c) }, opts...)
	}
	return sqlconn.TryDo(ctx, p.DB.Conn, key, func(ctx context.Context, c *sql.Conn) error { return fn(ctx, c) }, opts...)
}

func (p *pool) txDo(ctx context.Context, key advisory.Key, fn func(context.Context, xact.Tx) error, opts ...xact.BeginOption) error {
	if p.driver.sqlx {
		return xact.Do(ctx, p.x.BeginTxx, key, func(ctx context.Context, tx *sqlx.Tx) error { return fn(ctx, tx) }, opts...)
	}
	return xact.Do(ctx, p.DB.BeginTx, key, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, tx) }, opts...)
}

func (p *pool) txTryDo(ctx context.Context, key advisory.Key, fn func(context.Context, xact.Tx) error, opts ...xact.BeginOption) (bool, error) {
	if p.driver.sqlx {
		return xact.TryDo(ctx, p.x.BeginTxx, key, func(ctx context.Context, tx *sqlx.Tx) error { return fn(ctx, tx) }, opts...)
	}
	return xact.TryDo(ctx, p.DB.BeginTx, key, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, tx) }, opts...)
}

// locks counts the advisory locks of the pool's database, of any session, held and
// waited for. It asks on a connection of its own.
func (p *pool) locks(t testing.TB) (held, waiting int) {
	t.Helper()
	db, err := sql.Open("postgres", p.url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.QueryRow(`SELECT count(*) FILTER (WHERE granted), count(*) FILTER (WHERE NOT granted) FROM pg_locks
		WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&held, &waiting)
	if err != nil {
		t.Fatal(err)
	}
	return held, waiting
}

// noLocks fails the test unless all advisory locks are gone.
func (p *pool) noLocks(t testing.TB) {
	t.Helper()
	eventually(t, "all locks are released", func() bool {
		held, waiting := p.locks(t)
		return held+waiting == 0
	})
}

// doSQL runs a statement by hand.
func doSQL(t testing.TB, on interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, query string, args ...any) {
	t.Helper()
	if _, err := on.ExecContext(context.Background(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// ask returns the first column of the first row.
func ask[T any](t testing.TB, on interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}, query string, args ...any) (v T) {
	t.Helper()
	rows, err := on.QueryContext(context.Background(), query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	if !rows.Next() {
		t.Fatalf("%s: no row (%v)", query, rows.Err())
	}
	if err := rows.Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}
