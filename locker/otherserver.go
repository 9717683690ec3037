package locker

import (
	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pooler"
)

// fitsOtherServer returns an error if the Locker cannot use a server that is not PostgreSQL: its lock
// functions were not tried, or an option needs what only PostgreSQL has.
func (l *Locker) fitsOtherServer(version string) error {
	why := ""
	switch {
	case l.settings.Standby:
		why = "its failover is not PostgreSQL's, so leave out WithStandby"
	case l.settings.Fencing:
		why = "tokens come from PostgreSQL's write-ahead log, so leave out WithFencing"
	case !pooler.Known(l.db) && l.settings.NoServerCheck:
		why = "only a try shows whether its functions lock, so leave out WithoutServerCheck"
	case !pooler.Known(l.db):
		why = "other connections of this pool led to PostgreSQL, and this server's functions were not tried"
	default:
		return nil
	}
	return &advisory.UnsafeServerError{Reason: advisory.NotPostgreSQL, Detail: "version() is " + version + ": " + why}
}
