package harness

import (
	"net/url"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// Unprivileged returns the URL of a fresh database of a role that has no rights
// but to its own. It makes the role, on a server that is a test's own.
func Unprivileged(t testing.TB, s *pgtest.Server) string {
	t.Helper()
	u, err := url.Parse(s.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	database := strings.TrimPrefix(u.Path, "/")
	role := "role_of_" + database
	super := Drivers[0].Open(t, u.String())
	DoSQL(t, super, "CREATE ROLE "+role+" LOGIN PASSWORD 'word'")
	DoSQL(t, super, "ALTER DATABASE "+database+" OWNER TO "+role)
	u.User = url.UserPassword(role, "word")

	p := Drivers[0].Open(t, u.String())
	if Ask[bool](t, p, "SELECT rolsuper OR pg_has_role(current_user, 'pg_read_all_stats', 'usage') FROM pg_roles WHERE rolname = current_user") {
		t.Fatal("the role is privileged")
	}
	return u.String()
}
