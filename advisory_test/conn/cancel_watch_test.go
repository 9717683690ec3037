package conn_test

import (
	"bytes"
	"context"
	"database/sql"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
)

// openWatched is open, with a count of the messages by which sqlconn unlocks. It stays at
// nought where the link is encrypted.
func openWatched(d harness.Driver, t testing.TB, url string, unlocks *atomic.Int64) *harness.Pool {
	t.Helper()
	dialer := watchedDialer{unlocks: unlocks}
	var db *sql.DB
	if d.Sql == "pgx" {
		config, err := pgx.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		config.DialFunc = dialer.DialContext
		db = stdlib.OpenDB(*config)
	} else {
		connector, err := pq.NewConnector(url)
		if err != nil {
			t.Fatal(err)
		}
		connector.Dialer(dialer)
		db = sql.OpenDB(connector)
	}
	t.Cleanup(func() { db.Close() })
	return &harness.Pool{DB: db, By: d, Url: url, X: sqlx.NewDb(db, d.Sql)}
}

type watchedDialer struct {
	net.Dialer
	unlocks *atomic.Int64
}

func (d watchedDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return watchedConn{conn, d.unlocks}, nil
}

func (d watchedDialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

func (d watchedDialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.DialContext(ctx, network, address)
}

type watchedConn struct {
	net.Conn
	unlocks *atomic.Int64
}

func (c watchedConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("SELECT 1 WHERE pg_catalog.pg_advisory_unlock")) {
		c.unlocks.Add(1)
	}
	return c.Conn.Write(b)
}
