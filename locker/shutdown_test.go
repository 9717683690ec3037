package locker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/locker"
)

// ends runs Shutdown, and returns what it returned and when; an error that is
// context.DeadlineExceeded if it hung.
func ends(t *testing.T, l *locker.Locker) (took time.Duration, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	start := time.Now()
	err = l.Shutdown(ctx)
	return time.Since(start), err
}

// A lock that is lost holds nothing that Shutdown could wait for, whether its caller unlocks it
// or not; nor does one whose release HoldAtLeast puts off.
func TestShutdownDoesNotWaitForALostLock(t *testing.T) {
	for _, overdue := range []bool{false, true} {
		for _, putOff := range []bool{false, true} {
			timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
				k := lock(t, l, job, locker.HoldAtLeast(2*time.Hour))
				if putOff {
					k.Unlock()
				}
				if overdue {
					f.fallMute()
				} else {
					f.holder(job).Close()
				}
				time.Sleep(10 * time.Second)
				if !putOff && !errors.Is(context.Cause(k.Context()), advisory.ErrLost) {
					t.Fatal("it is not lost")
				}
				if !putOff && l.Stats().Users != 0 {
					t.Errorf("%+v", l.Stats())
				}
				if took, err := ends(t, l); err != nil || took > 2*time.Second { // in which a connection is closed
					t.Errorf("overdue %v, put off %v: Shutdown: %v after %v", overdue, putOff, err, took)
				}
				time.Sleep(time.Hour) // the connection is kept until the failover time is over
			})
		}
	}
}

// Work under a lost lock still runs: Shutdown waits for that.
func TestShutdownWaitsForWorkUnderALostLock(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		go l.Do(context.Background(), job, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Minute)
			return nil
		})
		synctest.Wait()
		f.holder(job).Close()
		start := time.Now()
		if _, err := ends(t, l); err != nil || time.Since(start) < time.Minute {
			t.Errorf("Shutdown: %v after %v", err, time.Since(start))
		}
	})
}

// A Close of which nothing is left that a server could have reports nothing.
func TestCloseOnADeadLinkThatHoldsNothing(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		if err := lock(t, l, job).Unlock(); err != nil {
			t.Fatal(err)
		}
		f.fallMute()
		time.Sleep(time.Second) // so that a ping is under way
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
	})
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		lock(t, l, job)
		f.fallMute()
		time.Sleep(10 * time.Second) // it is lost; the connection is kept for its caller
		takes(t, "Close", 0, func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Hour)
	})
}

// What no Locker was made for returns an error that says so.
func TestLockerThatWasNotMade(t *testing.T) {
	for _, l := range []*locker.Locker{nil, {}} {
		_, _, trying := l.TryLock(context.Background(), job)
		_, _, semaphore := l.Semaphore(job, 2).TryAcquire(context.Background())
		for name, err := range map[string]error{
			"TryLock": trying, "Semaphore": semaphore, "Ping": l.Ping(context.Background()), "Close": l.Close(),
			"Shutdown": l.Shutdown(context.Background()), "Lead": l.Lead(context.Background(), job, func(context.Context) error { return nil }),
		} {
			if err == nil || !strings.Contains(err.Error(), "locker.New") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if l.Holds(job) || l.Stats() != (locker.Stats{}) {
			t.Error("it has something")
		}
	}
}

func TestNilContext(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		var none context.Context
		_, _, trying := l.TryLock(none, job)
		_, locking := l.Lock(none, job, advisory.MaxWait(time.Second))
		_, _, all := l.TryLockAll(none, []advisory.Key{job})
		_, lockAll := l.LockAll(none, []advisory.Key{job}, advisory.MaxWait(time.Second))
		_, lockAny := l.LockAny(none, []advisory.Key{job})
		_, semaphore := l.Semaphore(job, 2).Acquire(none)
		held := lock(t, l, advisory.Int64(7))
		defer held.Unlock()
		for name, err := range map[string]error{
			"TryLock": trying, "Lock": locking, "TryLockAll": all, "LockAll": lockAll, "LockAny": lockAny, "Semaphore": semaphore,
			"Ping": l.Ping(none), "Shutdown": l.Shutdown(none), "Downgrade": held.Downgrade(none),
			"Lead": l.Lead(none, job, func(context.Context) error { return nil }),
			"Do":   l.Do(none, job, func(context.Context) error { return nil }),
		} {
			if err == nil || !strings.Contains(err.Error(), "ctx is nil") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestShutdownWithNothingHeld(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	failed := 0
	for range 100 {
		timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
			lock(t, l, job).Unlock()
			if err := l.Shutdown(ctx); err != nil {
				failed++
			}
		})
	}
	if failed > 0 {
		t.Errorf("%d of 100 failed", failed)
	}
}

func TestCloseWithASlowObserver(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		lock(t, l, job)
		err := l.Close()
		if f.holder(job) == nil && err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
	}, advisory.WithObserver(observed(func(e advisory.Event) {
		if e.Kind == advisory.SessionClosed {
			time.Sleep(3 * time.Second)
		}
	})))
}
