package harness

import (
	"context"
	"database/sql"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
)

// between opens a pool of the client's host, from which pair dials.
func (d Driver) Between(t *testing.T, pair Dialer, url string) *Pool {
	t.Helper()
	db, err := OpenBy(pair, d.Sql, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &Pool{DB: db, By: d, X: sqlx.NewDb(db, d.Sql)}
}

// openBy opens a pool whose connections by makes.
func OpenBy(by Dialer, driver, url string) (*sql.DB, error) {
	if driver == "pgx" {
		config, err := pgx.ParseConfig(url)
		if err != nil {
			return nil, err
		}
		config.DialFunc = by.DialContext
		return stdlib.OpenDB(*config), nil
	}
	connector, err := pq.NewConnector(url)
	if err != nil {
		return nil, err
	}
	connector.Dialer(by)
	return sql.OpenDB(connector), nil
}

// A Dialer dials for lib/pq and for pgx.
type Dialer interface {
	pq.Dialer
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}
