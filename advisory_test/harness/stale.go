package harness

import (
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/xact"
)

// Foreign are the ways to take a lock in a transaction of one's own.
var Foreign = []struct {
	Name string
	Lock func(t testing.TB, tx xact.Tx, keys []advisory.Key, opts ...advisory.TxOption) (bool, error)
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
