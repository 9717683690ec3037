package advisory_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/xact"
)

// foreign are the ways to take a lock in a transaction of one's own.
var foreign = []struct {
	name string
	lock func(t testing.TB, tx xact.Tx, keys []advisory.Key, opts ...advisory.TxOption) (bool, error)
}{
	{"TryLock", func(t testing.TB, tx xact.Tx, keys []advisory.Key, opts ...advisory.TxOption) (bool, error) {
		return xact.TryLock(t.Context(), tx, keys[0], opts...)
	}},
	{"Lock", func(t testing.TB, tx xact.Tx, keys []advisory.Key, opts ...advisory.TxOption) (bool, error) {
		err := xact.Lock(t.Context(), tx, keys[0], opts...)
		return err == nil, err
	}},
	{"TryLockAll", func(t testing.TB, tx xact.Tx, keys []advisory.Key, opts ...advisory.TxOption) (bool, error) {
		return xact.TryLockAll(t.Context(), tx, keys, opts...)
	}},
	{"LockAll", func(t testing.TB, tx xact.Tx, keys []advisory.Key, opts ...advisory.TxOption) (bool, error) {
		err := xact.LockAll(t.Context(), tx, keys, opts...)
		return err == nil, err
	}},
	{"LockAll of one", func(t testing.TB, tx xact.Tx, keys []advisory.Key, opts ...advisory.TxOption) (bool, error) {
		err := xact.LockAll(t.Context(), tx, keys[:1], opts...)
		return err == nil, err
	}},
	{"TryLockAny", func(t testing.TB, tx xact.Tx, keys []advisory.Key, opts ...advisory.TxOption) (bool, error) {
		k, ok, err := xact.TryLockAny(t.Context(), tx, keys, opts...)
		if ok == (k == advisory.Key{}) {
			t.Errorf("TryLockAny: %v, %v", k, ok)
		}
		return ok, err
	}},
}

// A lock in a transaction whose snapshot may be older is refused, unless asked for, by a
// try too and also where the key is free.
func TestStaleSnapshotIsRefused(t *testing.T) {
	pgtest.Slow(t)
	keys := []advisory.Key{key, advisory.Pair(-1, 7)}
	eachBeginning(t, func(t *testing.T, p *pool, b begun) {
		other := p.conn(t)
		for _, m := range modes {
			for _, form := range foreign {
				for _, taken := range []bool{false, true} {
					what := fmt.Sprintf("%s, %v, taken %v", form.name, m, taken)
					if taken {
						for _, k := range keys {
							tryLock(t, other, k)
						}
					}
					tx := p.tx(t, b.o)
					if !b.fresh() {
						if ok, err := form.lock(t, tx, keys, m); ok || !errors.Is(err, advisory.ErrStaleSnapshot) {
							t.Errorf("%s: %v, %v", what, ok, err)
						}
						want := 0
						if taken {
							want = len(keys)
						}
						if held, _ := p.locks(t); held != want {
							t.Errorf("%s: %d locks are held, not %d", what, held, want)
						}
					}
					if _, err := tx.ExecContext(t.Context(), "SELECT count(*) FROM numbers"); err != nil {
						t.Errorf("%s: the transaction is not usable: %v", what, err)
					}
					ok, err := form.lock(t, tx, keys, m, xact.AnyIsolation(), advisory.MaxWait(0))
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
							unlock(t, other, k)
						}
					}
				}
			}
		}
		p.noLocks(t)
	})
}
