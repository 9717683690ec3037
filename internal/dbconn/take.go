package dbconn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// Take takes a connection from db that answers. keep, if not nil, is told of each
// connection before it is asked, which may take for ever.
//
// A pool may have connections that have died, with a restart of the server, say. For its
// own calls database/sql goes on to the next, but not for a connection that it has given away.
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
