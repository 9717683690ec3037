package dbconn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// Take returns a connection of db that answers. It calls keep, if not nil, with each connection
// before it sends a statement on it, since that may not return.
//
// A pool may have connections that have died, after a restart of the server, say. For its own calls
// database/sql goes on to the next. Take does the same, for as many as were idle, and destroys
// those that it does not return.
func Take(ctx context.Context, db *sql.DB, keep func(*sql.Conn) error) (*sql.Conn, error) {
	for dead := db.Stats().Idle; ; dead-- {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		if keep != nil {
			err = keep(conn)
		}
		if err == nil {
			_, err = conn.ExecContext(ctx, "SELECT 1")
		}
		if err == nil {
			return conn, nil
		}
		if !errors.Is(err, driver.ErrBadConn) {
			Discard(conn)
		}
		conn.Close()
		if !lockfn.Gone(err) || dead <= 0 || ctx.Err() != nil {
			return nil, err
		}
	}
}
