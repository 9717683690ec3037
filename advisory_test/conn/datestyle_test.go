package conn_test

import (
	"context"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// A session may have set another DateStyle than ISO, the only one that lib/pq parses.
func TestHoldersInAnyDateStyle(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		holder := p.NewConn(t)
		harness.TryLock(t, holder, harness.Key)
		began := harness.Ask[int64](t, holder, "SELECT (extract(epoch FROM backend_start) * 1000000)::int8 FROM pg_stat_activity WHERE pid = pg_backend_pid()")
		check := func(what string, hs []advisory.Holder) {
			t.Helper()
			if len(hs) != 1 || hs[0].Since.IsZero() || hs[0].BackendStart.UnixMicro() != began {
				t.Errorf("%s: %+v, whose session began at %v", what, hs, time.UnixMicro(began))
			}
		}
		for _, style := range []string{"ISO, MDY", "German", "SQL, DMY", "Postgres, YMD"} {
			conn, tx := p.NewConn(t), p.Tx(t, nil)
			harness.DoSQL(t, conn, "SET DateStyle = '"+style+"'")
			harness.DoSQL(t, tx, "SET LOCAL DateStyle = '"+style+"'")

			var hs []advisory.Holder
			if ok, err := sqlconn.TryLock(t.Context(), conn, harness.Key, advisory.HoldersTo(&hs)); ok || err != nil {
				t.Errorf("%s: a try: %v, %v", style, ok, err)
			}
			check(style+": a try", hs)
			for what, wait := range map[string]func(context.Context, ...advisory.Option) error{
				style + ": a wait": func(ctx context.Context, opts ...advisory.Option) error {
					return sqlconn.Lock(ctx, conn, harness.Key, harness.OptionsAs[advisory.ConnOption](opts)...)
				},
				style + ": a wait in a transaction": func(ctx context.Context, opts ...advisory.Option) error {
					return xact.Lock(ctx, tx, harness.Key, harness.OptionsAs[advisory.TxOption](opts)...)
				},
			} {
				events, err := harness.UntilWaiting(t.Context(), wait)
				na, ok := err.(*advisory.NotAcquiredError)
				if !ok {
					t.Errorf("%s: %v", what, err)
					continue
				}
				check(what, na.Holders)
				if len(events) < 2 || events[0].Kind != advisory.Waiting {
					t.Errorf("%s: %+v", what, events)
				} else {
					check(what+", its event", events[0].Holders)
				}
			}
		}
	})
}
