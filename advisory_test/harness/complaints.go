package harness

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// Complaints returns the lines of the server's log that are warnings or worse, of
// sessions in the database of p.
func Complaints(t testing.TB, s *pgtest.Server, p *Pool) []string {
	t.Helper()
	u, err := url.Parse(p.Url)
	if err != nil {
		t.Fatal(err)
	}
	of := regexp.MustCompile(`\] ` + regexp.QuoteMeta(strings.TrimPrefix(u.Path, "/")) + `/\S* (WARNING|ERROR|FATAL|PANIC): `)

	// What was logged before this is there when this is.
	end := fmt.Sprintf("the end of the log for now, %x", rand.Uint64())
	DoSQL(t, Drivers[0].Open(t, s.URL()), "DO $$BEGIN RAISE WARNING '"+end+"'; END$$") // p may have no plpgsql
	var lines []string
	Eventually(t, "the server logs a warning", func() bool {
		log, _, found := strings.Cut(s.Log(), end)
		lines = strings.Split(log, "\n")
		return found
	})
	var found []string
	for _, line := range lines[:len(lines)-1] {
		if of.MatchString(line) && !strings.Contains(line, "the end of the log for now") {
			found = append(found, line)
		}
	}
	return found
}

// Silent fails the test if the log has complaints.
func Silent(t testing.TB, s *pgtest.Server, p *Pool) {
	t.Helper()
	if lines := Complaints(t, s, p); len(lines) > 0 {
		t.Errorf("the server's log has %d complaints:\n%s", len(lines), strings.Join(lines, "\n"))
	}
}

// SeesComplaints fails the test if complaints would not see any.
func SeesComplaints(t testing.TB, s *pgtest.Server) {
	t.Helper()
	p := Drivers[0].Open(t, s.Database(t))
	Silent(t, s, p)
	p.Exec("SELECT 1/0")
	p.Exec("SELECT pg_advisory_unlock(1)") // not held
	if lines := Complaints(t, s, p); len(lines) != 2 || !strings.Contains(lines[0], "division by zero") || !strings.Contains(lines[1], "WARNING") {
		t.Fatalf("after an error and a warning the log has the complaints %q", lines)
	}
}
