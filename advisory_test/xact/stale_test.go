package xact_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/xact"
)

// A lock in a transaction whose snapshot may be older is refused, unless asked for, by a
// try too and also where the key is free.
func TestStaleSnapshotIsRefused(t *testing.T) {
	pgtest.Slow(t)
	keys := []advisory.Key{harness.Key, advisory.Pair(-1, 7)}
	eachBeginning(t, func(t *testing.T, p *harness.Pool, b begun) {
		other := p.NewConn(t)
		for _, m := range harness.Modes {
			for _, form := range harness.Foreign {
				for _, taken := range []bool{false, true} {
					what := fmt.Sprintf("%s, %v, taken %v", form.Name, m, taken)
					if taken {
						for _, k := range keys {
							harness.TryLock(t, other, k)
						}
					}
					tx := p.Tx(t, b.o)
					if !b.fresh() {
						if ok, err := form.Lock(t, tx, keys, m); ok || !errors.Is(err, advisory.ErrStaleSnapshot) {
							t.Errorf("%s: %v, %v", what, ok, err)
						}
						want := 0
						if taken {
							want = len(keys)
						}
						if held, _ := p.Locks(t); held != want {
							t.Errorf("%s: %d locks are held, not %d", what, held, want)
						}
					}
					if _, err := tx.ExecContext(t.Context(), "SELECT count(*) FROM numbers"); err != nil {
						t.Errorf("%s: the transaction is not usable: %v", what, err)
					}
					ok, err := form.Lock(t, tx, keys, m, xact.AnyIsolation(), advisory.MaxWait(0))
					if errors.Is(err, advisory.ErrNotAcquired) {
						err = nil
					}
					if ok == taken || err != nil {
						t.Errorf("%s, any isolation: %v, %v", what, ok, err)
					}
					if err := tx.Commit(); err != nil {
						t.Errorf("%s: %v", what, err)
					}
					for _, k := range keys {
						if taken {
							harness.Unlock(t, other, k)
						}
					}
				}
			}
		}
		p.NoLocks(t)
	})
}
