package pooler

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// otherServerOf answers a probe as a server that is not PostgreSQL, with real functions at session
// level. beside is its answer to the tries of what the other connection holds, by whether those at
// transaction level are among them; released is how many of the keys pg_locks shows.
func otherServerOf(beside func(xact bool) (int64, error), released int64) Exec {
	return func(_ context.Context, text string) (int64, error) {
		switch {
		case strings.Contains(text, "pg_stat_activity"):
			return 0, refused{}
		case strings.Contains(text, "pg_locks"):
			return released, nil
		case strings.Contains(text, "generate_series"):
			return beside(strings.Contains(text, "_xact_"))
		}
		return 1, nil // the keys are taken, and the server is not PostgreSQL
	}
}

func TestProbeOfAnotherServer(t *testing.T) {
	keys := randomKeys()
	var inSession, inXact int64
	for n := int64(lockfn.BesideUnreal) + 1; inXact == 0; n++ {
		switch _, xact, ok := lockfn.BesideFunction(keys, n); {
		case ok && xact:
			inXact = n
		case ok:
			inSession = n
		}
	}
	all := lockfn.ProbeKeys{}.Count()
	for what, c := range map[string]struct {
		beside   func(xact bool) (int64, error)
		released int64
		reason   advisory.UnsafeReason
	}{
		"real":            {func(bool) (int64, error) { return lockfn.BesideBusy, nil }, all, ""},
		"nothing to see":  {func(bool) (int64, error) { return lockfn.BesideBusy, nil }, 0, advisory.NotPostgreSQL},
		"stub in session": {func(bool) (int64, error) { return inSession, nil }, all, advisory.NoExclusion},
		"missing":         {func(bool) (int64, error) { return 0, refused{} }, all, advisory.NotPostgreSQL},
		"stub in transaction": {func(xact bool) (int64, error) {
			if xact {
				return inXact, nil
			}
			return lockfn.BesideBusy, nil
		}, all, ""},
		"stubs in both": {func(xact bool) (int64, error) {
			if xact {
				return inXact, nil
			}
			return inSession, nil
		}, all, advisory.NoExclusion},
	} {
		exec := otherServerOf(c.beside, c.released)
		_, err := Probe(t.Context(), exec, exec)
		unsafe, _ := errors.AsType[*advisory.UnsafeServerError](err)
		if c.reason == "" && err != nil || c.reason != "" && (unsafe == nil || unsafe.Reason != c.reason) {
			t.Errorf("%s: %v", what, err)
		}
		if Leaves(err) != (c.reason == advisory.NotPostgreSQL) {
			t.Errorf("%s: %v: keys may stay: %v", what, err, Leaves(err))
		}
	}
}

// On a server that calls itself PostgreSQL, a function at transaction level that excludes nobody is
// refused.
func TestStubInTransactionOfPostgreSQL(t *testing.T) {
	keys, n := randomKeys(), int64(lockfn.BesideUnreal)
	for xact := false; !xact; {
		n++
		_, xact, _ = lockfn.BesideFunction(keys, n)
	}
	other := otherServerOf(func(bool) (int64, error) { return n, nil }, lockfn.ProbeKeys{}.Count())
	exec := func(ctx context.Context, text string) (int64, error) {
		if text == lockfn.OnOtherServer {
			return 0, nil
		}
		return other(ctx, text)
	}
	_, err := Probe(t.Context(), exec, exec)
	if unsafe, ok := errors.AsType[*advisory.UnsafeServerError](err); !ok || unsafe.Reason != advisory.NoExclusion {
		t.Error(err)
	}
}
