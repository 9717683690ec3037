package advisory_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// standby returns a server of the test's own that is a hot standby.
func standby(t *testing.T) *pgtest.Server {
	t.Helper()
	server := pgtest.NewServer(t)
	if server.Kind() != "binaries" {
		t.Skip("the data folder of this server is out of reach")
	}
	p := drivers[0].open(t, server.URL())
	data := ask[string](t, p, "SHOW data_directory")
	p.Close()
	if err := server.Stop("fast"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	return server
}

func TestLockerRefusesAHotStandby(t *testing.T) {
	pgtest.Slow(t)
	server := standby(t)
	for _, d := range drivers[:2] {
		t.Run(d.name, func(t *testing.T) {
			p := d.open(t, server.URL())
			if !ask[bool](t, p, "SELECT pg_is_in_recovery()") {
				t.Fatal("the server is no standby")
			}
			// This is why: the standby grants what the primary knows nothing of.
			if !ask[bool](t, p.conn(t), "SELECT pg_try_advisory_lock(4820)") {
				t.Error("the standby does not grant the lock: nothing to refuse")
			}
			l := p.locker(t)
			for what, err := range map[string]error{
				"Ping":    l.Ping(t.Context()),
				"TryLock": third(l.TryLock(t.Context(), key)),
				"Lock":    second(l.Lock(t.Context(), key)),
			} {
				var unsafe *advisory.UnsafeServerError
				if !errors.Is(err, advisory.ErrUnsafeServer) || !errors.As(err, &unsafe) || unsafe.Reason != advisory.Standby {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

func third[A, B any](_ A, _ B, err error) error { return err }
