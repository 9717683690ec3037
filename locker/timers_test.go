package locker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/locker"
)

// These tests have a clock of their own, by which each time is exact, and a server that is
// none. What a real server and a real network do at these times is shown by advisory_test.

var job = advisory.Int64(4820)

// timed runs a test with a clock of its own and a Locker.
func timed(t *testing.T, test func(t *testing.T, f *fakeServer, l *locker.Locker), opts ...locker.Option) {
	t.Helper()
	pooled(t, func(t *testing.T, f *fakeServer, _ *sql.DB, l *locker.Locker) { test(t, f, l) }, opts...)
}

// pooled is timed for tests that do something to the pool.
func pooled(t *testing.T, test func(t *testing.T, f *fakeServer, db *sql.DB, l *locker.Locker), opts ...locker.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		db := f.open()
		defer db.Close()
		l := locker.New(db, append(opts, locker.WithoutServerCheck())...)
		defer func() {
			l.Close()
			time.Sleep(time.Second) // in which a connection that was given up is closed
		}()
		test(t, f, db, l)
	})
}

func lock(t *testing.T, l *locker.Locker, key advisory.Key, opts ...advisory.LockerOption) advisory.Lock {
	t.Helper()
	lock, err := l.Lock(context.Background(), key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func takes(t *testing.T, what string, want time.Duration, do func()) {
	t.Helper()
	start := time.Now()
	do()
	if took := time.Since(start); took != want {
		t.Errorf("%s took %v, want %v", what, took, want)
	}
}

// A session is pinged once in each heartbeat, whether it holds a lock or not.
func TestHeartbeat(t *testing.T) {
	for _, heartbeat := range []time.Duration{time.Millisecond, 500 * time.Millisecond, 999 * time.Millisecond} {
		timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
			lock := lock(t, l, job)
			for _, what := range []string{"held", "free"} {
				synctest.Wait() // the first statement brings a ping along
				before := len(f.statements(isPing))
				time.Sleep(100 * heartbeat)
				synctest.Wait()
				if n := len(f.statements(isPing)) - before; n != 100 {
					t.Errorf("every %v, %s: %d pings in 100 heartbeats", heartbeat, what, n)
				}
				lock.Unlock()
			}
		}, locker.WithHeartbeat(heartbeat))
	}
}

// The server falls silent: the holder's Context ends a stop margin before the server would
// let go, by the times that the session has told it, and the server lets go within the
// failover time. Until the holder has returned, or the failover time is over, the connection
// stays, since its end would free the lock.
func TestDeadline(t *testing.T) {
	for _, failover := range []time.Duration{4 * time.Second, 6 * time.Second, 15 * time.Second, time.Minute, 9 * time.Hour} {
		for _, heartbeat := range []time.Duration{10 * time.Millisecond, 500 * time.Millisecond, 900 * time.Millisecond} {
			if failover == 4*time.Second && heartbeat > 500*time.Millisecond {
				continue // too short: New says so
			}
			for phase := range 4 {
				for _, returns := range []bool{true, false} {
					name := fmt.Sprintf("%v/%v/%d/%v", failover, heartbeat, phase, returns)
					t.Run(name, func(t *testing.T) { testDeadline(t, failover, heartbeat, phase, returns) })
				}
			}
		}
	}
}

func testDeadline(t *testing.T, failover, heartbeat time.Duration, phase int, returns bool) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		lock := lock(t, l, job)
		userTimeout := f.setting("tcp_user_timeout", time.Millisecond)
		idle := f.setting("tcp_keepalives_idle", time.Second)
		interval := f.setting("tcp_keepalives_interval", time.Second)
		margin := max(time.Second, userTimeout/4)
		if idle+interval < userTimeout {
			t.Errorf("an idle link is given up after %v, before tcp_user_timeout %v", idle+interval, userTimeout)
		}
		if bound := heartbeat + max(userTimeout, idle+interval) + time.Second; bound > failover {
			t.Errorf("a lock may be kept for %v", bound)
		}

		time.Sleep(3*heartbeat + heartbeat*time.Duration(phase)/4)
		synctest.Wait()
		silent := time.Now()
		f.fallMute()
		<-lock.Context().Done()
		answered := f.statements(isAnswered)
		last := answered[len(answered)-1].at
		if silent.Sub(last) > heartbeat {
			t.Errorf("silent %v after the last answer", silent.Sub(last))
		}
		if cause := context.Cause(lock.Context()); !errors.Is(cause, advisory.ErrLost) {
			t.Errorf("it ends with %v", cause)
		}
		ended := time.Since(last)
		if ended > userTimeout-margin {
			t.Errorf("told after %v, when the server lets go after %v", ended, userTimeout)
		}
		if ended < userTimeout/2 {
			t.Errorf("told after %v: the server lets go after %v only", ended, userTimeout)
		}
		if l.Holds(job) {
			t.Error("Holds says that it is held")
		}

		if f.holder(job) == nil {
			t.Fatal("the connection was closed at once")
		}
		if !returns {
			time.Sleep(failover - time.Nanosecond)
			if synctest.Wait(); f.holder(job) == nil {
				t.Error("the connection was closed while the holder was at work")
			}
			time.Sleep(time.Nanosecond)
		} else if err := lock.Unlock(); !errors.Is(err, advisory.ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
		time.Sleep(2 * time.Second) // for a call that does not return
		if synctest.Wait(); f.holder(job) != nil {
			t.Error("the connection is open still")
		}
		f.speakAgain()
	}, locker.WithFailover(failover), locker.WithHeartbeat(heartbeat))
}

// holder is the session that holds key.
func (f *fakeServer) holder(key advisory.Key) *fakeConn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.locks[key.String()]
}

// An answer that is late, but not too late, is no loss; the same times again and again are none.
func TestLateAnswers(t *testing.T) {
	const failover = 6 * time.Second
	for _, c := range []struct {
		delay time.Duration
		lost  bool
	}{
		{0, false}, {400 * time.Millisecond, false}, {time.Second, false}, {1400 * time.Millisecond, false}, // an answer counts from when it was asked for
		{3100 * time.Millisecond, true},
	} {
		timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
			lock := lock(t, l, job)
			f.set(func() { f.delay = c.delay })
			time.Sleep(time.Minute)
			if lost := lock.Context().Err() != nil; lost != c.lost {
				t.Errorf("answers after %v: %v", c.delay, context.Cause(lock.Context()))
			}
			f.set(func() { f.delay = 0 })
		}, locker.WithFailover(failover))
	}
}

// Unlock on a link that is dead returns at the deadline, and Close within two seconds.
func TestUnlockAndCloseOnADeadLinkReturn(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		lock := lock(t, l, job)
		deadline := f.setting("tcp_user_timeout", time.Millisecond) * 3 / 4
		f.fallMute()
		takes(t, "Unlock", deadline, func() {
			if err := lock.Unlock(); !errors.Is(err, advisory.ErrLost) {
				t.Error(err)
			}
		})
	})
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		lock(t, l, job)
		f.fallMute()
		time.Sleep(time.Second) // so that a ping is under way
		start := time.Now()
		if err := l.Close(); err == nil {
			t.Error("Close says nothing")
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("Close took %v", took)
		}
		time.Sleep(time.Hour)
	})
}

// HoldAtLeast puts the release off to the very end of its time, and not beyond it.
func TestHoldAtLeastIsExact(t *testing.T) {
	const least = 800 * time.Millisecond
	released := func(t *testing.T, f *fakeServer, start time.Time, want time.Duration) {
		t.Helper()
		synctest.Wait()
		unlocks := f.statements(does(lockfn.OpUnlock))
		if len(unlocks) != 1 || unlocks[0].at.Sub(start) != want {
			t.Errorf("releases: %d, want one after %v", len(unlocks), want)
		}
	}
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		start := time.Now()
		lock := lock(t, l, job, locker.HoldAtLeast(least))
		time.Sleep(5 * time.Millisecond)
		takes(t, "Unlock", 0, func() { lock.Unlock() })
		if lock.Context().Err() == nil {
			t.Error("its Context goes on")
		}
		time.Sleep(time.Hour)
		released(t, f, start, least)
	})
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		start := time.Now()
		takes(t, "Do", least, func() {
			l.Do(context.Background(), job, func(context.Context) error { time.Sleep(5 * time.Millisecond); return nil }, locker.HoldAtLeast(least))
		})
		released(t, f, start, least)
	})
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		start := time.Now()
		takes(t, "long work", 2*least, func() {
			l.Do(context.Background(), job, func(context.Context) error { time.Sleep(2 * least); return nil }, locker.HoldAtLeast(least))
		})
		released(t, f, start, 2*least)
	})
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		start := time.Now()
		lock(t, l, job, locker.HoldAtLeast(least)).Unlock()
		time.Sleep(300 * time.Millisecond)
		takes(t, "Close", least-300*time.Millisecond, func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
		released(t, f, start, least)
	})
}

// A process hands a lock from one to the next of its callers for 50 ms after it was granted,
// and then gives it back, so that others get their turn.
func TestHandOverTime(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		const work = 7 * time.Millisecond
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				lock := lock(t, l, job)
				time.Sleep(work)
				if err := lock.Unlock(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		tries, unlocks := f.statements(does(lockfn.OpTry)), f.statements(does(lockfn.OpUnlock))
		if len(tries) != 13 || len(unlocks) != 13 { // 100 callers, 8 at a time
			t.Fatalf("%d grants and %d releases", len(tries), len(unlocks))
		}
		for i := range unlocks[:12] {
			if held := unlocks[i].at.Sub(tries[i].at); held != 8*work {
				t.Errorf("grant %d: held for %v", i, held)
			}
		}
	})
}

// A key that another session holds is waited for in slices. MaxWait ends the wait on time, and the
// session that waited is kept for ten seconds.
func TestWaitsEndOnTime(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		other := &fakeConn{f: f}
		f.set(func() { f.locks[job.String()] = other })
		takes(t, "a wait", 310*time.Millisecond, func() {
			_, err := l.Lock(context.Background(), job, advisory.MaxWait(310*time.Millisecond))
			var e *advisory.NotAcquiredError
			if !errors.As(err, &e) || e.Waited != 310*time.Millisecond {
				t.Errorf("%v, %+v", err, e)
			}
		})
		if n := l.Stats().Sessions; n != 2 {
			t.Errorf("%d sessions", n)
		}
		time.Sleep(9 * time.Second)
		if n := l.Stats().Sessions; n != 2 {
			t.Errorf("%d sessions, nine seconds later", n)
		}
		time.Sleep(2 * time.Second)
		if synctest.Wait(); l.Stats().Sessions != 1 {
			t.Errorf("%d sessions, eleven seconds later", l.Stats().Sessions)
		}

		// A slice follows another, each half of the deadline long.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		before := len(f.statements(isSlice))
		takes(t, "a wait", time.Minute, func() { l.Lock(ctx, job) })
		slices := f.statements(isSlice)[before:]
		length := f.setting("tcp_user_timeout", time.Millisecond) * 3 / 4 / 2
		for i := range slices[1:] {
			if d := slices[i+1].at.Sub(slices[i].at); d != length {
				t.Errorf("a slice of %v, want %v", d, length)
			}
		}
		if len(slices) < int(time.Minute/length) {
			t.Errorf("%d slices", len(slices))
		}

		// Who waits gets it at once when it is free.
		done := make(chan advisory.Lock)
		go func() { done <- lock(t, l, job) }()
		time.Sleep(10 * time.Second)
		f.set(func() { f.free(job.String()) })
		takes(t, "the grant", 0, func() { (<-done).Unlock() })
	})
}

// Where slices would not be guarded in time the key is tried every 25 ms.
func TestPollTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.deadlock = 0
		f.locks[job.String()] = &fakeConn{f: f}
		db := f.open()
		defer db.Close()
		l := locker.New(db, locker.WithoutServerCheck())
		defer l.Close()
		if err := l.Ping(context.Background()); err != nil {
			t.Fatal(err)
		}
		_, err := l.Lock(context.Background(), job, advisory.MaxWait(510*time.Millisecond))
		if !errors.Is(err, advisory.ErrNotAcquired) {
			t.Error(err)
		}
		tries := f.statements(does(lockfn.OpTry))
		if len(tries) != 21 {
			t.Errorf("%d tries in 510ms", len(tries))
		}
		for i := range tries[1:] {
			if d := tries[i+1].at.Sub(tries[i].at); d != 25*time.Millisecond {
				t.Errorf("the next try after %v", d)
			}
		}
		if n := len(f.statements(isSlice)); n != 0 {
			t.Errorf("%d slices", n)
		}
	})
}

// To connect may take ten seconds, and a second more for the connection to be given up. Tries
// report that, and calls that wait go on.
func TestConnectTime(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		f.fallMute()
		got := make(chan error, 1)
		go func() {
			got <- l.Do(context.Background(), advisory.Int64(1), func(context.Context) error { return nil })
		}()
		takes(t, "TryLock", 11*time.Second, func() {
			if _, _, err := l.TryLock(context.Background(), job); err == nil || !strings.Contains(err.Error(), "open a session") {
				t.Error(err)
			}
		})
		time.Sleep(time.Minute)
		select {
		case err := <-got:
			t.Errorf("Do ended: %v", err)
		default:
		}
		f.speakAgain()
		if err := <-got; err != nil {
			t.Error(err)
		}
		lock(t, l, job).Unlock()
	})
}

// A leader that cannot be one tries again after a pause that doubles up to ten seconds, and
// differs by chance by up to half of it; it begins anew after it has led. ctx ends a pause.
func TestLeadPauses(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		refusal := errors.New("no more connections")
		f.set(func() { f.refused = refusal })
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		leads := make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			ended <- l.Lead(ctx, job, func(ctx context.Context) error {
				leads <- struct{}{}
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		time.Sleep(5 * time.Minute)
		pauses(t, f.campaigns(), 50*time.Millisecond, 10*time.Second)

		f.set(func() { f.refused = nil })
		start := time.Now()
		<-leads
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("leads after %v", d)
		}

		// The session ends, and the pauses begin anew.
		f.set(func() { f.dialed, f.refused = nil, refusal })
		f.holder(job).Close()
		time.Sleep(time.Minute)
		pauses(t, f.campaigns(), 50*time.Millisecond, 1500*time.Millisecond)
		takes(t, "the end", 0, func() {
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	})
}

func (f *fakeServer) campaigns() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.dialed)
}

// pauses looks at those between the campaigns.
func pauses(t *testing.T, campaigns []time.Time, first, last time.Duration) {
	t.Helper()
	if len(campaigns) < 8 {
		t.Fatalf("%d campaigns", len(campaigns))
	}
	exact := 0
	for i := range campaigns[1:] {
		want := min(first<<min(i, 20), last)
		pause := campaigns[i+1].Sub(campaigns[i])
		if pause < want/2 || pause > want {
			t.Errorf("pause %d took %v, want %v to %v", i, pause, want/2, want)
		}
		if pause == want/2 || pause == want {
			exact++
		}
	}
	if exact == len(campaigns)-1 {
		t.Error("no pause differs by chance")
	}
}

// A ping that was answered late does not make the next ones come more often.
func TestPingsAfterALateAnswer(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		f.set(func() { f.delay = 600 * time.Millisecond }) // longer than the heartbeat
		if err := l.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		f.set(func() { f.delay = 10 * time.Millisecond })
		before := len(f.statements(isPing))
		time.Sleep(10 * time.Second)
		if n := len(f.statements(isPing)) - before; n < 19 || n > 22 {
			t.Errorf("%d pings in 10 s, with a heartbeat of 500 ms", n)
		}
	})
}
