package locker_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/locker"
)

// These tests are of sessions on an old primary: a standby was promoted, and the pool leads to it from
// now on. See doubt_test.go for what Ping reports, and docs/failover.md.

// stale is a test of a Locker with WithStandby, beside another Locker of the same pool.
func stale(t *testing.T, test func(t *testing.T, f *fakeServer, l, other *locker.Locker)) {
	t.Helper()
	pooled(t, func(t *testing.T, f *fakeServer, db *sql.DB, l *locker.Locker) {
		other := locker.New(db, locker.WithoutServerCheck())
		defer other.Close()
		test(t, f, l, other)
	}, locker.WithStandby(), locker.WithFailover(standbyTimes.Failover), locker.WithMaxConns(2))
}

// promote has new connections lead to a promoted server, and the pool know of that through other.
func (f *fakeServer) promote(t *testing.T, other *locker.Locker) {
	t.Helper()
	moved := f.opened()
	f.set(func() {
		f.timeline = "00000002"
		f.replica.id = func(c *fakeConn) string {
			if c.pid > moved {
				return "1 2"
			}
			return "1 1"
		}
	})
	if err := other.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// isLost waits for the next beat, with which the lock is lost.
func isLost(t *testing.T, lock advisory.Lock) {
	t.Helper()
	time.Sleep(standbyTimes.Beat)
	synctest.Wait()
	if cause := context.Cause(lock.Context()); !errors.Is(cause, advisory.ErrLost) || reason(cause) != advisory.StalePrimary {
		t.Errorf("the lock's Context ends with %v", cause)
	}
}

// keeps reports whether a session has key on the server still, after the time that its last statement
// may take.
func (f *fakeServer) keeps(key advisory.Key) bool {
	time.Sleep(time.Second)
	synctest.Wait()
	return f.holder(key) != nil
}

// A session that is lost keeps its connection until the work under its locks has returned: to close it
// would free the keys on the old primary at once.
func TestAnOldPrimaryKeepsTheLocksOfWork(t *testing.T) {
	stale(t, func(t *testing.T, f *fakeServer, l, other *locker.Locker) {
		second := lock(t, l, advisory.Int64(2))
		end, ended := make(chan struct{}), make(chan error)
		go func() {
			ended <- l.Do(t.Context(), job, func(context.Context) error { <-end; return nil })
		}()
		synctest.Wait()
		f.promote(t, other)
		isLost(t, second)
		for _, key := range []advisory.Key{job, second.Key()} {
			if !f.keeps(key) {
				t.Errorf("%s is free while Do's function runs", key)
			}
		}
		close(end)
		if err := <-ended; !errors.Is(err, advisory.ErrLost) {
			t.Errorf("Do: %v", err)
		}
		if !f.keeps(second.Key()) {
			t.Error("it is free before Unlock")
		}
		if err := second.Unlock(); !errors.Is(err, advisory.ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
		if f.keeps(job) || f.keeps(second.Key()) {
			t.Error("the connection is open after the work")
		}
	})
}

// Work that does not return keeps the connection for the failover time.
func TestAnOldPrimaryKeepsNoLockBeyondTheFailoverTime(t *testing.T) {
	stale(t, func(t *testing.T, f *fakeServer, l, other *locker.Locker) {
		held := lock(t, l, job)
		f.promote(t, other)
		isLost(t, held)
		<-held.Context().Done()
		time.Sleep(standbyTimes.Failover - 2*standbyTimes.Beat)
		if synctest.Wait(); f.holder(job) == nil {
			t.Error("it is free while the holder is at work")
		}
		time.Sleep(2 * standbyTimes.Beat)
		if f.keeps(job) {
			t.Error("the connection is open after the failover time")
		}
		held.Unlock()
	})
}

// Close and Shutdown wait for no Unlock of a lock that is lost so, and do not free its key.
func TestClosingWithWorkOnAnOldPrimary(t *testing.T) {
	for name, end := range map[string]func(*locker.Locker) error{
		"Close":    (*locker.Locker).Close,
		"Shutdown": func(l *locker.Locker) error { return l.Shutdown(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			stale(t, func(t *testing.T, f *fakeServer, l, other *locker.Locker) {
				held := lock(t, l, job)
				f.promote(t, other)
				isLost(t, held)
				takes(t, name, 0, func() {
					if err := end(l); err != nil {
						t.Error(err)
					}
				})
				if !f.keeps(job) {
					t.Error("the key is free before Unlock")
				}
				held.Unlock()
				if f.keeps(job) {
					t.Error("the connection is open after Unlock")
				}
			})
		})
	}
}

// Shutdown waits for the function of Do, as with any lock that is lost.
func TestShutdownWaitsForWorkOnAnOldPrimary(t *testing.T) {
	stale(t, func(t *testing.T, f *fakeServer, l, other *locker.Locker) {
		second := lock(t, l, advisory.Int64(2))
		go l.Do(t.Context(), job, func(context.Context) error { time.Sleep(3 * time.Second); return nil })
		synctest.Wait()
		f.promote(t, other)
		isLost(t, second)
		takes(t, "Shutdown", 3*time.Second-standbyTimes.Beat, func() {
			if err := l.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
		if second.Unlock(); f.keeps(job) {
			t.Error("the connection is open after the work")
		}
	})
}

// Calls that wait go on at the new primary, though a try of theirs had no answer when the session was
// lost.
func TestWaitsGoOnAfterAnOldPrimary(t *testing.T) {
	keys := []advisory.Key{job, advisory.Int64(2)}
	for name, wait := range map[string]func(context.Context, *locker.Locker) error{
		"Lock":    func(ctx context.Context, l *locker.Locker) error { return free(l.Lock(ctx, job)) },
		"LockAny": func(ctx context.Context, l *locker.Locker) error { return free(l.LockAny(ctx, keys)) },
		"LockAll": func(ctx context.Context, l *locker.Locker) error {
			locks, err := l.LockAll(ctx, keys)
			locks.Unlock()
			return err
		},
		"Do": func(ctx context.Context, l *locker.Locker) error {
			return l.Do(ctx, job, func(context.Context) error { return nil })
		},
		"Lead": func(ctx context.Context, l *locker.Locker) error {
			return l.Lead(ctx, job, func(context.Context) error { return nil })
		},
		"Semaphore": func(ctx context.Context, l *locker.Locker) error {
			return free(l.Semaphore(semaphore, 1).Acquire(ctx))
		},
	} {
		for what, waiting := range map[string]time.Duration{"first try": 0, "poll": 500 * time.Millisecond} {
			t.Run(name+", "+what, func(t *testing.T) {
				stale(t, func(t *testing.T, f *fakeServer, l, other *locker.Locker) {
					f.set(func() { f.deadlock = time.Millisecond }) // all waits are polled
					held := lock(t, l, advisory.Int64(3))
					silence := func() { f.set(func() { f.silent = takesLock }) }
					taken := append([]advisory.Key{slotOfIt}, keys...)
					for _, k := range taken {
						f.taken(k)
					}
					if waiting == 0 {
						silence()
					}
					ended := make(chan error, 1)
					go func() { ended <- wait(t.Context(), l) }()
					time.Sleep(waiting)
					silence()
					time.Sleep(50 * time.Millisecond) // until a try is sent
					f.promote(t, other)
					f.set(func() { f.silent = nil })
					isLost(t, held)
					held.Unlock()
					select {
					case err := <-ended:
						t.Fatalf("it ends while its keys are taken: %v", err)
					default:
					}
					f.set(func() {
						for _, k := range taken {
							f.free(k.String())
						}
					})
					time.Sleep(5 * time.Second)
					select {
					case err := <-ended:
						if err != nil {
							t.Error(err)
						}
					default:
						t.Error("it goes on waiting for keys that are free")
					}
				})
			})
		}
	}
}

var (
	semaphore = advisory.Int64(7)
	slotOfIt  = advisory.Name("pgadvisory", "semaphore", semaphore.String(), "0")
)

// free releases the lock of a call.
func free(lock advisory.Lock, err error) error {
	if err == nil {
		lock.Unlock()
	}
	return err
}

// takesLock reports whether a statement tries keys.
func takesLock(s *fakeStatement) bool {
	return slices.Contains(s.ops, lockfn.OpTry) || strings.Contains(s.text, "pg_try_advisory_lock")
}

// Before its first session a Locker is led to the old primary, of a pool that has led to the new one.
// Tries and first waits report that at once. Lead campaigns until the pool leads to the new one.
func TestCallsAtAnOldPrimary(t *testing.T) {
	stale(t, func(t *testing.T, f *fakeServer, l, other *locker.Locker) {
		f.promote(t, other)
		f.set(func() { f.timeline = "00000001" })
		led, ended := make(chan time.Time, 1), make(chan error, 1)
		go func() {
			ended <- l.Lead(t.Context(), job, func(context.Context) error { led <- time.Now(); return nil })
		}()
		time.Sleep(5 * time.Second)
		for name, call := range map[string]func() error{
			"Ping":       func() error { return l.Ping(t.Context()) },
			"TryLock":    func() error { _, _, err := l.TryLock(t.Context(), job); return err },
			"TryLockAny": func() error { _, _, err := l.TryLockAny(t.Context(), []advisory.Key{job}); return err },
			"TryLockAll": func() error { _, _, err := l.TryLockAll(t.Context(), []advisory.Key{job}); return err },
			"TryDo": func() error {
				_, err := l.TryDo(t.Context(), job, func(context.Context) error { return nil })
				return err
			},
			"TryAcquire": func() error { _, _, err := l.Semaphore(semaphore, 1).TryAcquire(t.Context()); return err },
			"MaxWait":    func() error { return free(l.Lock(t.Context(), job, advisory.MaxWait(0))) },
			"Lock":       func() error { return free(l.Lock(t.Context(), job)) },
		} {
			takes(t, name, 0, func() {
				if err := call(); reason(err) != advisory.StalePrimary {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		select {
		case err := <-ended:
			t.Fatalf("Lead ends with %v", err)
		default:
		}
		f.set(func() { f.timeline = "00000002" })
		<-led
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
