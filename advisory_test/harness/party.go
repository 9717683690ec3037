package harness

import (
	"context"
	"database/sql"

	"github.com/jmoiron/sqlx"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// A Claim is a lock that somebody holds or wants.
type Claim struct {
	Key  advisory.Key
	Mode advisory.Mode
}

func BeginOn(conn sqlconn.Conn) func(context.Context, *sql.TxOptions) (xact.Tx, error) {
	return func(ctx context.Context, o *sql.TxOptions) (xact.Tx, error) {
		if c, ok := conn.(*sqlx.Conn); ok {
			return c.BeginTxx(ctx, o)
		}
		return conn.(*sql.Conn).BeginTx(ctx, o)
	}
}
