package xact_test

import (
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/inspect"
	"github.com/pgadvisory/pgadvisory/xact"
)

// pg_stat_activity does not change within a transaction after its first read. A holder that came later
// has a user, a client and times nevertheless.
func TestHoldersInATransactionAreThoseOfNow(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		first := p.NewConn(t)
		harness.TryLock(t, first, harness.Key)
		for _, settings := range []string{"", "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off", "SET LOCAL jit_above_cost = 0"} {
			tx := p.Tx(t, nil)
			harness.DoSQL(t, tx, settings)
			if n := harness.Ask[int](t, tx, "SELECT count(*) FROM pg_stat_activity"); n == 0 {
				t.Fatal("the transaction has read nothing")
			}
			second := p.NewConn(t)
			harness.Unlock(t, first, harness.Key)
			harness.TryLock(t, second, harness.Key)
			first = second

			var hs []advisory.Holder
			if ok, err := xact.TryLock(t.Context(), tx, harness.Key, advisory.HoldersTo(&hs)); ok || err != nil {
				t.Fatal(ok, err)
			}
			if len(hs) != 1 || hs[0].User == "" || hs[0].Client == "" || hs[0].Since.IsZero() || hs[0].BackendStart.IsZero() {
				t.Errorf("%q: %+v", settings, hs)
			}
			locks, err := inspect.Locks(t.Context(), tx)
			if err != nil || len(locks) != 1 || locks[0].State != "idle" || locks[0].User == "" {
				t.Errorf("%q: inspect.Locks: %+v, %v", settings, locks, err)
			}
		}
	})
}
