package locker

import (
	"context"
	"database/sql"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pooler"
)

// fitsOtherServer returns an error if the Locker cannot use the server of conn, which is not PostgreSQL:
// its lock functions exclude nobody, or an option needs what only PostgreSQL has. A check that this pool
// has passed on PostgreSQL says nothing of it.
func (l *Locker) fitsOtherServer(ctx context.Context, conn *sql.Conn, version string) error {
	why := ""
	switch {
	case l.settings.Standby:
		why = "its failover is not PostgreSQL's, so leave out WithStandby"
	case l.settings.Fencing:
		why = "tokens come from PostgreSQL's write-ahead log, so leave out WithFencing"
	case pooler.KnownOther(l.db):
		return nil
	case l.settings.NoServerCheck:
		why = "only a try shows whether its functions lock, so leave out WithoutServerCheck"
	default:
		err := l.checkServer(ctx, conn, pooler.Indirect, probeTime)
		if err == nil {
			pooler.RememberOther(l.db)
		}
		return err
	}
	return &advisory.UnsafeServerError{Reason: advisory.NotPostgreSQL, Detail: "version() is " + version + ": " + why}
}
