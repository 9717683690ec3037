// Package inspect shows the advisory locks of a database:
//
//   - [Locks] and [Holders] return who holds the locks and who waits for them.
//   - [Suspects] returns the ones that look like an incident.
//   - [Handler] serves all of that as a page, for a debug server.
//   - [Check] reports whether a server is fit for advisory locks at all.
//
// The package changes nothing on the server, and never reads the text of a statement.
//
// What the server shows depends on the role. Every role sees keys, modes, pids, users, application
// names and who waits for whom. Only a role with the privileges of pg_read_all_stats, which
// pg_monitor includes, sees the client, the state and the times of other roles' sessions.
// [Lock.Hidden] names the values that the role may not see.
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

// A DB runs a query: a *sql.DB, a *sql.Conn, a *sqlx.DB or another type with this method.
//
// Within one transaction the server shows sessions as they were when they were first read. So use a
// *sql.Tx for one call only.
type DB interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}
