// Package inspect shows the advisory locks of a database: who holds them and who
// waits ([Locks], [Holders]), which of them look like an incident ([Suspects]), and a page of all
// that for a debug server ([Handler]). These change nothing on the server, and never ask for the text
// of a statement. [Check] says whether a server is fit for advisory locks at all.
//
// What the server shows depends on the role. Everybody sees keys, modes, pids, users,
// application names and who waits for whom. Only a role with the rights of pg_read_all_stats
// (which pg_monitor has too) sees the client, the state and the times of other roles'
// sessions: of these, what is missing is named in [Lock.Hidden].
//
//	GRANT pg_read_all_stats TO app
//
// An advisory lock that an extension took for its own purposes is on no key. It is left out, and
// counted by [Foreign].
//
// Locks belong to one database; what is listed are those of the database that the
// connection is to.
package inspect

import (
	"context"
	"database/sql"
)

// A DB runs a query: a *sql.DB, *sql.Conn, *sqlx.DB or the like.
//
// Within one transaction the server shows sessions as they were when they were first
// looked at, so a *sql.Tx serves for one look.
type DB interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}
