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

// waitingCalls are the calls of a Locker that wait, on keys of their own. Each returns when it has had its lock.
var waitingCalls = map[string]func(ctx context.Context, l *locker.Locker, k advisory.Key) error{
	"Lock": func(ctx context.Context, l *locker.Locker, k advisory.Key) error {
		lock, err := l.Lock(ctx, k)
		if err == nil {
			err = lock.Unlock()
		}
		return err
	},
	"Lock, shared": func(ctx context.Context, l *locker.Locker, k advisory.Key) error {
		lock, err := l.Lock(ctx, k, advisory.Shared)
		if err == nil {
			err = lock.Unlock()
		}
		return err
	},
	"Do": func(ctx context.Context, l *locker.Locker, k advisory.Key) error {
		return l.Do(ctx, k, func(context.Context) error { return nil })
	},
	"LockAll": func(ctx context.Context, l *locker.Locker, k advisory.Key) error {
		locks, err := l.LockAll(ctx, []advisory.Key{k, advisory.Name(k.String(), "free")})
		if err == nil {
			err = locks.Unlock()
		}
		return err
	},
	"LockAny": func(ctx context.Context, l *locker.Locker, k advisory.Key) error {
		lock, err := l.LockAny(ctx, []advisory.Key{k})
		if err == nil {
			err = lock.Unlock()
		}
		return err
	},
	"Lead": func(ctx context.Context, l *locker.Locker, k advisory.Key) error {
		return l.Lead(ctx, k, func(context.Context) error { return nil })
	},
	"Semaphore.Acquire": func(ctx context.Context, l *locker.Locker, k advisory.Key) error {
		lock, err := l.Semaphore(k, 1).Acquire(ctx)
		if err == nil {
			err = lock.Unlock()
		}
		return err
	},
	"Semaphore.Do": func(ctx context.Context, l *locker.Locker, k advisory.Key) error {
		return l.Semaphore(k, 1).Do(ctx, func(context.Context) error { return nil })
	},
}

func keyOfCall(name string) advisory.Key { return advisory.Name("waits", name) }

// occupy takes, by a Locker of its own, the keys for which the calls wait. The end of the server frees them.
func occupy(t *testing.T, url string) {
	t.Helper()
	l := locker.New(harness.Drivers[0].Open(t, url).DB)
	t.Cleanup(func() { l.Close() })
	for name := range waitingCalls {
		var ok bool
		var err error
		if strings.HasPrefix(name, "Semaphore") {
			_, ok, err = l.Semaphore(keyOfCall(name), 1).TryAcquire(t.Context())
		} else {
			_, ok, err = l.TryLock(t.Context(), keyOfCall(name))
		}
		if !ok || err != nil {
			t.Fatalf("%s: %v, %v", name, ok, err)
		}
	}
}

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
			occupy(t, server.URL())
			ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
			defer cancel()
			ended := make(chan string)
			calls := 0
			begin := func(who string, l *locker.Locker) {
				for name, call := range waitingCalls {
					calls++
					go func() {
						who := fmt.Sprintf("%s, %s", who, name)
						if err := call(ctx, l, keyOfCall(name)); err != nil {
							who += fmt.Sprintf(": FAILED: %v", err)
						}
						ended <- who
					}()
				}
			}
			var lockers []*locker.Locker
			for _, d := range harness.Drivers[:2] {
				l := locker.New(d.Open(t, server.URL()).DB)
				t.Cleanup(func() { l.Close() })
				lockers = append(lockers, l)
				begin(d.Name+", waits before", l)
				harness.Eventually(t, "they wait", func() bool { return l.Stats().Waiting >= len(waitingCalls) })
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
					begin(d.Name+", waits meanwhile", lockers[i])
					first := locker.New(d.Open(t, server.URL()).DB)
					t.Cleanup(func() { first.Close() })
					begin(d.Name+", waits meanwhile by a Locker that never had a session", first)
				}
				time.Sleep(o.away)
				if err := server.Start(); err != nil {
					t.Fatal(err)
				}
			}
			back := time.Now() // a little later than it is
			for range calls {
				if who := <-ended; strings.Contains(who, "FAILED") {
					t.Error(who)
				}
			}
			t.Logf("%d calls had their locks within %v of the server's return", calls, time.Since(back).Round(10*time.Millisecond))
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
					for name, call := range waitingCalls {
						ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
						err := call(ctx, l, keyOfCall(name))
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
