package conn_test

import (
	"context"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/dbconn"
)

// GiveUp ends a statement whose context never ends, of either driver. Also where the statement is
// just about to return, which pgx would answer with a panic if its connection were closed then.
func TestGiveUpEndsAStatement(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		round := func(statement string, after time.Duration) error {
			conn := p.NewConn(t)
			var below dbconn.Driver
			if err := conn.Raw(below.Keep); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				_, err := conn.ExecContext(context.Background(), statement)
				ended <- err
			}()
			time.Sleep(after)
			below.GiveUp()
			select {
			case err := <-ended:
				return err
			case <-time.After(harness.Patience):
				t.Fatal("the statement goes on")
				return nil
			}
		}
		if err := round("SELECT pg_sleep(3600)", 20*time.Millisecond); err == nil {
			t.Error("the statement has come to its end")
		}
		for i := range 100 {
			round("SELECT pg_sleep(0.002)", 2*time.Millisecond+time.Duration(i-50)*20*time.Microsecond)
		}
	})
}
