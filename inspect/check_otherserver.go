package inspect

import (
	"context"
	"database/sql"
	"strings"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/pooler"
)

// otherServer adds the finding for a server that is not PostgreSQL: which of its functions exclude. err
// is the error of the probe.
func (c *check) otherServer(ctx context.Context, db *sql.DB, first *pooler.Link, version string, err error) error {
	second, serr := pooler.Second(ctx, db)
	if serr != nil {
		c.report.addUnsafe("PostgreSQL", advisory.NotPostgreSQL, version+"; its functions could not be tried: "+serr.Error(),
			"The check needs two connections of the pool at once")
		return nil
	}
	defer second.Close()
	var real, fake []string
	session, xact := true, true
	for _, f := range lockfn.TryFunctions() {
		excludes, err := pooler.Excludes(ctx, first, second, f)
		switch {
		case err != nil:
			return err
		case excludes:
			real = append(real, f.String())
			continue
		case f.Xact:
			xact = false
		default:
			session = false
		}
		fake = append(fake, f.String())
	}
	value := version + "; these exclude: " + listed(real) + "; these do not: " + listed(fake)
	if err != nil {
		session, value = false, value+"; "+err.Error()
	}
	if session && xact {
		c.report.add("PostgreSQL", Warning, value, otherFailover)
		return nil
	}
	c.report.addUnsafe("PostgreSQL", advisory.NotPostgreSQL, value, otherAdvice(session, xact))
	return nil
}

const otherFailover = "Its failover is not PostgreSQL's: what is said of standbys does not apply, and a Locker refuses WithStandby and WithFencing"

func otherAdvice(session, xact bool) string {
	switch {
	case session:
		return "Use package sqlconn and a Locker, not package xact. " + otherFailover
	case xact:
		return "Use only package xact, or connect to PostgreSQL"
	}
	return "Connect to PostgreSQL"
}

func listed(functions []string) string {
	if len(functions) == 0 {
		return "none"
	}
	return strings.Join(functions, ", ")
}
