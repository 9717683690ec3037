package pgtest

import (
	"context"
	"database/sql"
	"net/url"
	"time"

	"github.com/lib/pq"
)

// admin runs do on a new connection to u, and closes it afterwards. So tests that count connections
// see only their own.
func admin(ctx context.Context, u *url.URL, do func(ctx context.Context, conn *sql.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()

	own := *u
	setParam(&own, "application_name", "pgtest")
	setParam(&own, "connect_timeout", "10") // lib/pq does not use ctx until it is connected
	connector, err := pq.NewConnector(own.String())
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return do(ctx, conn)
}

// execute runs statements one by one.
func execute(ctx context.Context, u *url.URL, statements ...string) error {
	return admin(ctx, u, func(ctx context.Context, conn *sql.Conn) error {
		for _, statement := range statements {
			if _, err := conn.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}

// serverVersion returns server_version_num. It fails if the server does not accept connections.
func serverVersion(ctx context.Context, u *url.URL) (version int, err error) {
	err = admin(ctx, u, func(ctx context.Context, conn *sql.Conn) error {
		return conn.QueryRowContext(ctx, "SELECT pg_catalog.current_setting('server_version_num')::int").Scan(&version)
	})
	return version, err
}
