package inspect_test

import (
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/inspect"
)

// The session that asks may have set another DateStyle than ISO, the only one that lib/pq parses.
func TestInspectInAnyDateStyle(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		holder := p.NewConn(t)
		harness.TryLock(t, holder, harness.Key)
		waiter := blockOn(t, p, harness.Key, advisory.Exclusive)
		since := func(pid int, column string) int64 {
			return harness.Ask[int64](t, p, "SELECT (extract(epoch FROM "+column+") * 1000000)::int8 FROM pg_stat_activity WHERE pid = $1", pid)
		}
		for _, style := range []string{"ISO, MDY", "German", "SQL, DMY", "Postgres, YMD"} {
			conn := p.NewConn(t)
			harness.DoSQL(t, conn, "SET DateStyle = '"+style+"'")
			locks, err := inspect.Locks(t.Context(), conn)
			if err != nil || len(locks) != 2 {
				t.Errorf("%s: %+v, %v", style, locks, err)
				continue
			}
			for _, l := range locks {
				if l.Since.IsZero() || l.Age <= 0 || l.StateSince.UnixMicro() != since(l.PID, "state_change") {
					t.Errorf("%s: %+v", style, l)
				}
			}
			if l := locks[1]; l.PID != waiter || l.QueryAge <= 0 || l.TransactionAge <= 0 {
				t.Errorf("%s: the waiter is %+v", style, l)
			}
			if _, err := inspect.Suspects(t.Context(), conn); err != nil {
				t.Errorf("%s: %v", style, err)
			}
			if hs, err := inspect.Holders(t.Context(), conn, harness.Key); err != nil || len(hs) != 1 || hs[0].BackendStart.UnixMicro() != since(hs[0].PID, "backend_start") {
				t.Errorf("%s: %+v, %v", style, hs, err)
			}
		}
	})
}
