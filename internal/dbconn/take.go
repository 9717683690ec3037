package dbconn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// ask is the statement that a connection answers before it is used.
const ask = "SELECT 1"

// Take returns a connection of db that answers. It calls keep, if not nil, with a connection on
// which it then sends a statement that only ctx bounds, since that may not return.
//
// A pool may have connections that have died, after a restart of the server, say. For its own calls
// database/sql goes on to the next. Take does the same, for as many as were idle, and destroys
// those that do not answer. If one is silent, its host may be gone, with all connections to it. Then
// Take asks all others that are idle at once, before it opens one.
func Take(ctx context.Context, db *sql.DB, keep func(*sql.Conn) error) (*sql.Conn, error) {
	for idle, n := db.Stats().Idle, 1; idle > 0 && ctx.Err() == nil; {
		conn, err := firstIdle(ctx, db, n)
		switch idle -= n; {
		case err == nil:
			return keptOr(conn, keep)
		case errors.Is(err, errSilent):
			n = idle
		case !lockfn.Gone(err):
			return nil, err
		}
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if conn, err = keptOr(conn, keep); err != nil {
		return nil, err
	}
	if _, err = conn.ExecContext(ctx, ask); err != nil {
		destroy(conn, err)
		return nil, err
	}
	return conn, nil
}

// keptOr calls keep, and returns conn or destroys it.
func keptOr(conn *sql.Conn, keep func(*sql.Conn) error) (*sql.Conn, error) {
	if keep == nil {
		return conn, nil
	}
	if err := keep(conn); err != nil {
		destroy(conn, err)
		return nil, err
	}
	return conn, nil
}

// destroy destroys a connection that failed with err.
func destroy(conn *sql.Conn, err error) {
	if !errors.Is(err, driver.ErrBadConn) {
		Discard(conn)
	}
	conn.Close()
}
