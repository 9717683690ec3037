package harness

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

// A Driver is a way to reach the server; each suite runs through each.
type Driver struct {
	Name string // as subtests have it
	Sql  string // as database/sql has it
	Sqlx bool   // pass *sqlx.Conn and *sqlx.Tx

	Pgxpool bool // there is another pool below database/sql's
}

var Drivers = []Driver{
	{Name: "pq", Sql: "postgres"},
	{Name: "pgx", Sql: "pgx"},
	{Name: "sqlx", Sql: "postgres", Sqlx: true},
}

// EachDriver runs a subtest for each driver, with a fresh database, all at once.
func EachDriver(t *testing.T, test func(t *testing.T, p *Pool)) {
	AtOnce(t, func(all *Together) {
		for _, d := range Drivers {
			all.Start(d.Name, func(t *testing.T) { test(t, d.Open(t, pgtest.URL(t))) })
		}
	})
}

// A Pool is a *sql.DB, and the calls that take or give a connection or a transaction
// with the types of its driver's flavour.
type Pool struct {
	*sql.DB
	By    Driver
	Url   string
	X     *sqlx.DB
	Below *pgxpool.Pool // if the driver says so
}

func (d Driver) Open(t testing.TB, url string) *Pool {
	t.Helper()
	if d.Pgxpool {
		return d.openPgxpool(t, url)
	}
	db, err := sql.Open(d.Sql, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &Pool{DB: db, By: d, Url: url, X: sqlx.NewDb(db, d.Sql)}
}

// conn pins a connection until the end of the test.
func (p *Pool) NewConn(t testing.TB) sqlconn.Conn {
	t.Helper()
	conn, err := p.Pin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (p *Pool) Pin(ctx context.Context) (sqlconn.Conn, error) {
	if p.By.Sqlx {
		return p.X.Connx(ctx)
	}
	return p.DB.Conn(ctx)
}

// Tx begins a transaction that is rolled back at the end of the test.
func (p *Pool) Tx(t testing.TB, o *sql.TxOptions) xact.Tx {
	t.Helper()
	tx, err := p.NewTx(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

func (p *Pool) NewTx(ctx context.Context, o *sql.TxOptions) (xact.Tx, error) {
	if p.By.Sqlx {
		return p.X.BeginTxx(ctx, o)
	}
	return p.DB.BeginTx(ctx, o)
}

func (p *Pool) Do(ctx context.Context, key advisory.Key, fn func(context.Context, sqlconn.Conn) error, opts ...advisory.ConnOption) error {
	if p.By.Sqlx {
		return sqlconn.Do(ctx, p.X.Connx, key, func(ctx context.Context, c *sqlx.Conn) error { return fn(ctx, c) }, opts...)
	}
	return sqlconn.Do(ctx, p.DB.Conn, key, func(ctx context.Context, c *sql.Conn) error { return fn(ctx, c) }, opts...)
}

func (p *Pool) TryDo(ctx context.Context, key advisory.Key, fn func(context.Context, sqlconn.Conn) error, opts ...advisory.ConnOption) (bool, error) {
	if p.By.Sqlx {
		return sqlconn.TryDo(ctx, p.X.Connx, key, func(ctx context.Context, c *sqlx.Conn) error { return fn(ctx, c) }, opts...)
	}
	return sqlconn.TryDo(ctx, p.DB.Conn, key, func(ctx context.Context, c *sql.Conn) error { return fn(ctx, c) }, opts...)
}

func (p *Pool) TxDo(ctx context.Context, key advisory.Key, fn func(context.Context, xact.Tx) error, opts ...xact.BeginOption) error {
	if p.By.Sqlx {
		return xact.Do(ctx, p.X.BeginTxx, key, func(ctx context.Context, tx *sqlx.Tx) error { return fn(ctx, tx) }, opts...)
	}
	return xact.Do(ctx, p.DB.BeginTx, key, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, tx) }, opts...)
}

func (p *Pool) TxTryDo(ctx context.Context, key advisory.Key, fn func(context.Context, xact.Tx) error, opts ...xact.BeginOption) (bool, error) {
	if p.By.Sqlx {
		return xact.TryDo(ctx, p.X.BeginTxx, key, func(ctx context.Context, tx *sqlx.Tx) error { return fn(ctx, tx) }, opts...)
	}
	return xact.TryDo(ctx, p.DB.BeginTx, key, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, tx) }, opts...)
}

// Locks counts the advisory locks of the pool's database, of any session, held and
// waited for. It asks on a connection of its own.
func (p *Pool) Locks(t testing.TB) (held, waiting int) {
	t.Helper()
	db, err := sql.Open("postgres", p.Url)
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

// NoLocks fails the test unless all advisory locks are gone.
func (p *Pool) NoLocks(t testing.TB) {
	t.Helper()
	Eventually(t, "all locks are released", func() bool {
		held, waiting := p.Locks(t)
		return held+waiting == 0
	})
}

// DoSQL runs a statement by hand.
func DoSQL(t testing.TB, on interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, query string, args ...any,
) {
	t.Helper()
	if _, err := on.ExecContext(context.Background(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// Ask returns the first column of the first row.
func Ask[T any](t testing.TB, on interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}, query string, args ...any,
) (v T) {
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
