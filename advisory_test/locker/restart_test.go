package locker_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// The server ends and starts again while calls wait. They go on waiting, and have their locks then. Calls
// that begin to wait while the server is away do so, too. A try says what is wrong.
func TestWaitsGoOnThroughARestart(t *testing.T) {
	outages := []struct {
		name     string
		slow     bool
		end      func(*pgtest.Server) error
		away     time.Duration
		restarts bool // at once
	}{
		{"restart", false, (*pgtest.Server).Restart, 0, true},
		{"away for 3 s", true, func(s *pgtest.Server) error { return s.Stop("fast") }, 3 * time.Second, false},
		{"crash", true, (*pgtest.Server).Crash, time.Second, false},
	}
	for _, o := range outages {
		t.Run(o.name, func(t *testing.T) {
			if o.slow {
				pgtest.Slow(t)
			}
			server := pgtest.NewServer(t)
			harness.Occupy(t, server.URL())
			ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
			defer cancel()
			var waits harness.Waits
			var lockers []*locker.Locker
			for _, d := range harness.Drivers[:2] {
				l := locker.New(d.Open(t, server.URL()).DB)
				t.Cleanup(func() { l.Close() })
				lockers = append(lockers, l)
				waits.Begin(ctx, d.Name+", waits before", l)
				harness.Eventually(t, "they wait", func() bool { return l.Stats().Waiting >= len(harness.WaitingCalls) })
			}
			if err := o.end(server); err != nil {
				t.Fatal(err)
			}
			if !o.restarts {
				for i, d := range harness.Drivers[:2] {
					for name, call := range callsThatSucceed {
						if name == "Ping" || strings.Contains(name, "Try") || strings.Contains(name, "MaxWait(0)") {
							k := advisory.Name("not waited for", d.Name, name)
							if ok, err := call(ctx, lockers[i], k); ok || err == nil || errors.Is(err, advisory.ErrNotAcquired) {
								t.Errorf("%s, %s, while the server is away: %v, %v", d.Name, name, ok, err)
							}
						}
					}
					waits.Begin(ctx, d.Name+", waits meanwhile", lockers[i])
					first := locker.New(d.Open(t, server.URL()).DB)
					t.Cleanup(func() { first.Close() })
					waits.Begin(ctx, d.Name+", waits meanwhile by a Locker that never had a session", first)
				}
				time.Sleep(o.away)
				if err := server.Start(); err != nil {
					t.Fatal(err)
				}
			}
			back := time.Now() // a little later than it is
			n := waits.End(t)
			t.Logf("%d calls had their locks within %v of the server's return", n, time.Since(back).Round(10*time.Millisecond))
		})
	}
}

// A fault that no later attempt mends ends a wait at once, on a Locker that had a session, too.
func TestWaitsEndAtALastingFault(t *testing.T) {
	server := pgtest.NewServer(t)
	faults := map[string]string{
		"28P01": "ALTER ROLE %[1]s PASSWORD 'another'",
		"28000": "ALTER ROLE %[1]s NOLOGIN",
		"42501": "REVOKE CONNECT ON DATABASE %[1]s FROM PUBLIC",
		"3D000": "ALTER DATABASE %[1]s RENAME TO %[1]s_",
	}
	admin := harness.Drivers[0].Open(t, server.URL())
	for _, d := range harness.Drivers[:2] {
		for state, change := range faults {
			t.Run(d.Name+"/"+state, func(t *testing.T) {
				name := strings.ToLower("fault_" + d.Name + "_" + state)
				harness.DoSQL(t, admin, "CREATE ROLE "+name+" LOGIN PASSWORD 'secret'")
				harness.DoSQL(t, admin, "CREATE DATABASE "+name)
				u, err := url.Parse(server.URL())
				if err != nil {
					t.Fatal(err)
				}
				u.Path, u.User = "/"+name, url.UserPassword(name, "secret")
				begun, first := d.Open(t, u.String()).Locker(t), d.Open(t, u.String()).Locker(t)
				if err := begun.Ping(t.Context()); err != nil {
					t.Fatal(err)
				}
				harness.DoSQL(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '"+name+"'")
				harness.Eventually(t, "the sessions have ended", func() bool {
					return harness.Ask[int](t, admin, "SELECT count(*) FROM pg_stat_activity WHERE datname = '"+name+"'") == 0
				})
				harness.DoSQL(t, admin, fmt.Sprintf(change, name))
				for what, l := range map[string]*locker.Locker{"that had a session": begun, "that never had one": first} {
					for name, call := range harness.WaitingCalls {
						ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
						err := call(ctx, l, harness.KeyOfCall(name))
						var of interface{ SQLState() string }
						if errors.Is(err, advisory.ErrNotAcquired) || !errors.As(err, &of) || of.SQLState() != state {
							t.Errorf("%s, on a Locker %s: %v", name, what, err)
						}
						cancel()
					}
				}
			})
		}
	}
}
