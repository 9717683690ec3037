package harness

import (
	"context"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/locker"
)

func (p *Pool) Locker(t testing.TB, opts ...locker.Option) *locker.Locker {
	t.Helper()
	l := locker.New(p.DB, opts...)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func LockerTry(t testing.TB, l advisory.Locker, k advisory.Key, opts ...advisory.LockerOption) (advisory.Lock, bool) {
	t.Helper()
	lock, ok, err := l.TryLock(context.Background(), k, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lock, ok
}
