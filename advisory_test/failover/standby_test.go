package failover_test

import (
	"errors"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func TestLockerRefusesAHotStandby(t *testing.T) {
	pgtest.Slow(t)
	server := harness.Standby(t)
	for _, d := range harness.Drivers[:2] {
		t.Run(d.Name, func(t *testing.T) {
			p := d.Open(t, server.URL())
			if !harness.Ask[bool](t, p, "SELECT pg_is_in_recovery()") {
				t.Fatal("the server is no standby")
			}
			// This is why: the standby grants what the primary knows nothing of.
			if !harness.Ask[bool](t, p.NewConn(t), "SELECT pg_try_advisory_lock(4820)") {
				t.Error("the standby does not grant the lock: nothing to refuse")
			}
			l := p.Locker(t)
			for what, err := range map[string]error{
				"Ping":    l.Ping(t.Context()),
				"TryLock": harness.Third(l.TryLock(t.Context(), harness.Key)),
				"Lock":    harness.Second(l.Lock(t.Context(), harness.Key)),
			} {
				var unsafe *advisory.UnsafeServerError
				if !errors.Is(err, advisory.ErrUnsafeServer) || !errors.As(err, &unsafe) || unsafe.Reason != advisory.Standby {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}
