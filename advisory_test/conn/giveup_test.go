package conn_test

import (
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"

	"context"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/dbconn"
)

// A statement of lib/pq's that does not return is ended by closing the connection beneath it. One
// of pgx's ends with its context, and closing beneath it is a data race, of which pgx panics.
func TestOnlyADriverThatHangsIsClosedBeneathAStatement(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		conn := p.NewConn(t)
		var below dbconn.Driver
		if err := conn.Raw(below.Keep); err != nil {
			t.Fatal(err)
		}
		below.GiveUp()
		_, err := conn.ExecContext(context.Background(), "SELECT 1")
		if hangs := p.By.Sql == "postgres"; (err != nil) != hangs {
			t.Errorf("a statement after it: %v", err)
		}
	})
}
