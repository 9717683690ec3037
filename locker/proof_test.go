package locker_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/failover"
	"github.com/pgadvisory/pgadvisory/locker"
)

// standbyTimes are those of the tests here: D is 3 s, and a beat is sent every 750 ms.
var standbyTimes = failover.Of(6*time.Second, failover.DefaultHeartbeat)

// proven is timed for a Locker that requires a standby.
func proven(t *testing.T, test func(t *testing.T, f *fakeServer, l *locker.Locker), opts ...locker.Option) {
	t.Helper()
	timed(t, test, append(opts, locker.WithStandby(), locker.WithFailover(standbyTimes.Failover))...)
}

// cutOff has no commit confirmed any more. The server goes on answering everything else.
func (f *fakeServer) cutOff() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replica.away = make(chan struct{})
}

func (f *fakeServer) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.replica.away != nil {
		close(f.replica.away)
		f.replica.away = nil
	}
}

// beats returns the beats that were sent.
func (f *fakeServer) beats() []*fakeStatement { return f.statements(isBeat) }

// connections returns how many are open.
func (f *fakeServer) connections() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		if c.closedAt.IsZero() {
			n++
		}
	}
	return n
}

// opened returns how many were ever opened.
func (f *fakeServer) opened() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pids
}

// lastConfirmed is when the last beat was sent that was answered.
func (f *fakeServer) lastConfirmed() (at time.Time) {
	for _, s := range f.beats() {
		f.mu.Lock()
		if s.answered {
			at = s.at
		}
		f.mu.Unlock()
	}
	return at
}

func TestBeatsAreSentWhileSomethingIsHeld(t *testing.T) {
	proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		lock := lock(t, l, job)
		if n := len(f.beats()); n != 1 {
			t.Errorf("%d beats before the first lock", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n, want := len(f.beats()), 1+int(time.Minute/standbyTimes.Beat); n != want {
			t.Errorf("%d beats in a minute, want %d", n, want)
		}
		if lock.Context().Err() != nil || !l.Holds(job) {
			t.Error(context.Cause(lock.Context()))
		}
		f.set(func() {
			if commit := f.settings["synchronous_commit"]; commit != "on" {
				t.Errorf("synchronous_commit is %q", commit)
			}
		})
		locks := f.holder(job)
		for _, b := range f.beats() {
			if b.pid == locks.pid {
				t.Fatal("a beat is on the session that holds the lock")
			}
		}
	})
}

// A Locker that does not ask for a standby sends no beat.
func TestNoBeatsWithoutStandby(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		f.cutOff()
		lock := lock(t, l, job)
		time.Sleep(time.Minute)
		if lock.Context().Err() != nil || len(f.beats()) != 0 || f.connections() != 1 {
			t.Errorf("%v, %d beats, %d connections", context.Cause(lock.Context()), len(f.beats()), f.connections())
		}
	})
}

// The standby does not confirm any more, and the primary lives on: all Contexts end D after the last
// confirmed beat was sent, however well pings are answered. The connection stays for as long as somebody
// works under its locks, as after any deadline.
func TestContextsEndAfterTheLastConfirmedBeat(t *testing.T) {
	for phase := range 5 {
		for _, returns := range []bool{true, false} {
			proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
				f.set(func() { f.delay = time.Duration(phase) * 50 * time.Millisecond }) // sent is not answered
				first, second := lock(t, l, job), lock(t, l, advisory.Int64(2))
				time.Sleep(4*standbyTimes.Beat + time.Duration(phase)*standbyTimes.Beat/5)
				synctest.Wait()
				f.cutOff()
				<-first.Context().Done()
				synctest.Wait()
				if ended := time.Since(f.lastConfirmed()); ended != standbyTimes.Deadline {
					t.Errorf("it ends %v after the last confirmed beat was sent", ended)
				}
				for _, lock := range []advisory.Lock{first, second} {
					if cause := context.Cause(lock.Context()); !errors.Is(cause, advisory.ErrLost) || !errors.Is(cause, advisory.ErrUnconfirmed) {
						t.Errorf("the cause is %v", cause)
					}
				}
				if l.Holds(job) {
					t.Error("Holds says that it is held")
				}
				if f.holder(job) == nil {
					t.Fatal("the connection was closed at once")
				}
				if !returns {
					time.Sleep(standbyTimes.Failover - time.Nanosecond)
					if synctest.Wait(); f.holder(job) == nil {
						t.Error("the connection was closed while the holder was at work")
					}
					time.Sleep(time.Nanosecond)
				} else {
					for _, lock := range []advisory.Lock{first, second} {
						if err := lock.Unlock(); !errors.Is(err, advisory.ErrLost) {
							t.Errorf("Unlock: %v", err)
						}
					}
				}
				time.Sleep(time.Second) // for its last statement
				if synctest.Wait(); f.holder(job) != nil {
					t.Error("the connection is open still")
				}
				time.Sleep(2 * time.Second)
				if synctest.Wait(); f.connections() != 0 {
					t.Errorf("%d connections are open", f.connections())
				}
			})
		}
	}
}

// A standby that is away for less than the deadline costs nothing.
func TestStandbyThatIsBackInTime(t *testing.T) {
	proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		lock := lock(t, l, job)
		for range 10 {
			time.Sleep(time.Second)
			f.cutOff()
			time.Sleep(standbyTimes.Deadline - standbyTimes.Beat - 10*time.Millisecond)
			f.heal()
		}
		time.Sleep(time.Minute)
		if lock.Context().Err() != nil {
			t.Error(context.Cause(lock.Context()))
		}
	})
}

// A beat that waited for a standby for longer than D confirms nothing, and one that did not counts from
// when it was sent.
func TestABeatCountsFromWhenItWasSent(t *testing.T) {
	proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		lock := lock(t, l, job)
		time.Sleep(standbyTimes.Beat / 2)
		f.cutOff()
		time.Sleep(standbyTimes.Beat/2 + 2*time.Second) // the beat waits for 2 s
		synctest.Wait()
		f.heal()
		synctest.Wait()
		f.cutOff() // and no other is confirmed, or one that was sent at the same moment
		last := f.lastConfirmed()
		<-lock.Context().Done()
		defer lock.Unlock()
		if ended := time.Since(last); ended != standbyTimes.Deadline {
			t.Errorf("it ends after %v", ended)
		}
	})
}

// No lock is given out before a confirmation. A try then fails, and one whose ctx ends says why.
func TestNoLockBeforeAConfirmation(t *testing.T) {
	proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		f.cutOff()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, ok, err := l.TryLock(ctx, job); ok || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, advisory.ErrUnconfirmed) {
			t.Errorf("TryLock with a deadline: %v, %v", ok, err)
		}
		time.Sleep(standbyTimes.Deadline)
		takes(t, "TryLock", standbyTimes.Deadline, func() {
			if _, ok, err := l.TryLock(t.Context(), job); ok || !errors.Is(err, advisory.ErrUnconfirmed) || errors.Is(err, advisory.ErrLost) {
				t.Errorf("TryLock: %v, %v", ok, err)
			}
		})
		if err := l.Ping(t.Context()); !errors.Is(err, advisory.ErrUnconfirmed) {
			t.Errorf("Ping: %v", err)
		}
		if n := f.locked(); n != 0 {
			t.Errorf("%d locks on the server", n)
		}
		time.Sleep(2 * time.Second)
		f.heal()
		lock(t, l, job).Unlock()
	})
}

// A beat that waited until little of D was left lets out no lock: it would be lost at once. The next one
// does.
func TestNoLockThatCannotLast(t *testing.T) {
	for _, back := range []bool{false, true} {
		proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
			f.cutOff()
			time.AfterFunc(standbyTimes.Deadline-standbyTimes.Beat/2, func() {
				f.heal()
				if !back {
					f.cutOff() // for the next beat
				}
			})
			took := standbyTimes.Deadline - standbyTimes.Beat/2
			if !back {
				took = standbyTimes.Deadline
			}
			takes(t, "TryLock", took, func() {
				held, ok, err := l.TryLock(t.Context(), job)
				if ok != back || !back && !errors.Is(err, advisory.ErrUnconfirmed) {
					t.Errorf("back %v: %v, %v", back, ok, err)
				}
				if ok {
					defer held.Unlock()
				}
			})
		})
	}
}

// If each beat waits that long, a try ends as one without any beat does.
func TestNoLockWhereEachBeatIsLate(t *testing.T) {
	proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		const late = 7 // beats
		f.cutOff()
		for n := range late {
			time.AfterFunc(time.Duration(n+1)*(standbyTimes.Deadline-standbyTimes.Beat/2), func() {
				f.heal()
				f.cutOff()
			})
		}
		takes(t, "TryLock", standbyTimes.Deadline, func() {
			if _, ok, err := l.TryLock(t.Context(), job); ok || !errors.Is(err, advisory.ErrUnconfirmed) {
				t.Errorf("%v, %v", ok, err)
			}
		})
		f.heal()
		time.Sleep(late * standbyTimes.Deadline)
	})
}

// locked is how many keys are held.
func (f *fakeServer) locked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.locks)
}

// A server that was promoted gives out no lock before its grace is over, and then at once.
func TestGraceOfAPromotedServer(t *testing.T) {
	for _, grace := range []time.Duration{time.Millisecond, 500 * time.Millisecond, standbyTimes.Grace} {
		proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
			f.set(func() { f.replica.grace = grace })
			ctx, cancel := context.WithTimeout(t.Context(), grace/2)
			defer cancel()
			start := time.Now()
			if _, err := l.Lock(ctx, job); !errors.Is(err, advisory.ErrUnconfirmed) || !strings.Contains(err.Error(), "promoted") {
				t.Errorf("Lock with a deadline: %v", err)
			}
			lock := lock(t, l, job)
			if took := time.Since(start); took != grace {
				t.Errorf("the first lock after %v, want %v", took, grace)
			}
			time.Sleep(time.Minute)
			if lock.Context().Err() != nil {
				t.Error(context.Cause(lock.Context()))
			}
		})
	}
}

// In the grace the beats are not confirmed any more.
func TestGraceWithoutConfirmations(t *testing.T) {
	proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		f.set(func() { f.replica.grace = standbyTimes.Grace })
		time.AfterFunc(100*time.Millisecond, f.cutOff)
		takes(t, "TryLock", standbyTimes.Deadline, func() {
			if _, ok, err := l.TryLock(t.Context(), job); ok || !errors.Is(err, advisory.ErrUnconfirmed) {
				t.Errorf("%v, %v", ok, err)
			}
		})
		f.heal()
	})
}

func TestNoSynchronousStandby(t *testing.T) {
	for _, names := range []string{"", "  "} {
		proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
			f.set(func() { f.replica.names = names })
			_, _, tried := l.TryLock(t.Context(), job)
			_, waited := l.Lock(t.Context(), job)
			for what, err := range map[string]error{"Ping": l.Ping(t.Context()), "TryLock": tried, "Lock": waited} {
				unsafe, ok := errors.AsType[*advisory.UnsafeServerError](err)
				if !ok || unsafe.Reason != advisory.NoStandby || !strings.Contains(err.Error(), "synchronous_standby_names") {
					t.Errorf("%s: %v", what, err)
				}
			}
			// A failover manager may set them later.
			led := make(chan error, 1)
			go func() { led <- l.Lead(t.Context(), job, func(context.Context) error { return nil }) }()
			time.Sleep(time.Minute)
			f.set(func() { f.replica.names = "b" })
			if err := <-led; err != nil {
				t.Errorf("Lead: %v", err)
			}
		})
	}
}

// The names are taken away: what was confirmed before counts, and no more.
func TestStandbyNamesThatBecomeEmpty(t *testing.T) {
	proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		lock := lock(t, l, job)
		time.Sleep(standbyTimes.Beat / 2)
		empty := time.Now().Add(-standbyTimes.Beat / 2)
		f.set(func() { f.replica.names = "" })
		<-lock.Context().Done()
		defer lock.Unlock()
		if ended := time.Since(empty); ended != standbyTimes.Deadline {
			t.Errorf("it ends after %v", ended)
		}
		if cause := context.Cause(lock.Context()); !errors.Is(cause, advisory.ErrUnconfirmed) || !strings.Contains(cause.Error(), "synchronous_standby_names is empty") {
			t.Error(cause)
		}
	})
}

// The witness's connection ends: another takes its place.
func TestWitnessThatEnds(t *testing.T) {
	proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		held := lock(t, l, job)
		for range 10 {
			f.endWitness()
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		if held.Context().Err() != nil {
			t.Error(context.Cause(held.Context()))
		}
		if synctest.Wait(); f.connections() != 2 {
			t.Errorf("%d connections", f.connections())
		}
		// None can be opened any more.
		f.set(func() { f.refused = errors.New("too many connections") })
		f.endWitness()
		last := f.lastConfirmed()
		<-held.Context().Done()
		defer held.Unlock()
		if ended := time.Since(last); ended != standbyTimes.Deadline {
			t.Errorf("it ends after %v", ended)
		}
		if cause := context.Cause(held.Context()); !errors.Is(cause, advisory.ErrUnconfirmed) || !strings.Contains(cause.Error(), "too many connections") {
			t.Error(cause)
		}
		f.set(func() { f.refused = nil })
	})
}

// endWitness ends the session that sent the last beat.
func (f *fakeServer) endWitness() {
	beats := f.beats()
	pid := beats[len(beats)-1].pid
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		if c.pid == pid {
			c.end()
		}
	}
}

// The pool leads to another server meanwhile: a witness there shows nothing.
func TestWitnessOnAnotherServer(t *testing.T) {
	proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		first := lock(t, l, job)
		last := f.lastConfirmed()
		moved := f.opened()
		f.set(func() {
			f.replica.id = func(c *fakeConn) string {
				if c.pid > moved {
					return "1 2"
				}
				return "1 1"
			}
		})
		f.endWitness()
		<-first.Context().Done()
		if ended := time.Since(last); ended != standbyTimes.Deadline {
			t.Errorf("it ends after %v", ended)
		}
		if cause := context.Cause(first.Context()); !errors.Is(cause, advisory.ErrUnconfirmed) || !strings.Contains(cause.Error(), "two servers") {
			t.Error(cause)
		}
		first.Unlock()
		lock(t, l, job).Unlock() // on the other server, which has a proof of its own
	})
}

// Something in between has the witness's own connection lead to another server.
func TestBeatThatAnotherServerAnswers(t *testing.T) {
	proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		held := lock(t, l, job)
		last := f.lastConfirmed()
		f.set(func() { f.replica.id = func(*fakeConn) string { return "1 2" } })
		<-held.Context().Done()
		defer held.Unlock()
		if ended := time.Since(last); ended != standbyTimes.Deadline {
			t.Errorf("it ends after %v", ended)
		}
	})
}

// Something in between resets the witness's session: its commits wait for nobody, and another takes its
// place.
func TestWitnessThatIsReset(t *testing.T) {
	proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		held := lock(t, l, job)
		for range 3 {
			f.set(func() {
				for _, c := range f.conns {
					c.commit = "off"
				}
			})
			time.Sleep(2 * time.Second)
		}
		if held.Context().Err() != nil {
			t.Error(context.Cause(held.Context()))
		}
		if n := f.opened(); n != 5 { // the session's, the first witness's and three more
			t.Errorf("%d connections were opened", n)
		}
	})
}

// A Locker that has nothing to do costs the server nothing, and goes on when it has.
func TestAnIdleLockerSendsNoBeats(t *testing.T) {
	proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		for range 3 {
			held := lock(t, l, job)
			time.Sleep(time.Minute)
			held.Unlock()
			time.Sleep(12 * time.Second)
			synctest.Wait()
			beats := len(f.beats())
			if n := f.connections(); n != 0 || l.Stats().Sessions != 0 {
				t.Errorf("%d connections", n)
			}
			time.Sleep(time.Minute)
			if len(f.beats()) != beats {
				t.Error("beats while nothing is held")
			}
		}
		// One that asks now and then keeps them, also if it is refused.
		f.set(func() { f.locks[job.String()] = &fakeConn{f: f} })
		l.Ping(t.Context())
		opened := f.opened()
		for range 20 {
			time.Sleep(9 * time.Second)
			if _, ok, err := l.TryLock(t.Context(), job); ok || err != nil {
				t.Errorf("%v, %v", ok, err)
			}
		}
		if n := f.opened(); n != opened {
			t.Errorf("%d connections were opened, %d before", n, opened)
		}
	})
}

// Close returns in time although a beat waits, and nothing is left of it, whatever the driver does.
func TestCloseWhileABeatWaits(t *testing.T) {
	for _, mindless := range []bool{false, true} {
		proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
			held := lock(t, l, job)
			f.set(func() { f.mindless = mindless })
			f.cutOff()
			time.Sleep(standbyTimes.Beat + time.Millisecond)
			start := time.Now()
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("Close took %v", took)
			}
			if cause := context.Cause(held.Context()); !errors.Is(cause, advisory.ErrClosed) {
				t.Error(cause)
			}
			time.Sleep(3 * time.Second)
			if synctest.Wait(); !mindless && f.connections() != 0 {
				t.Errorf("%d connections are open", f.connections())
			}
			f.heal()
		})
	}
}

// In a pool of two the work under a lock would find no connection.
func TestStandbyNeedsAPoolOfThree(t *testing.T) {
	for n := 2; n <= 3; n++ {
		pooled(t, func(t *testing.T, f *fakeServer, db *sql.DB, l *locker.Locker) {
			db.SetMaxOpenConns(n)
			err := l.Ping(t.Context())
			if n == 3 && err != nil || n == 2 && (err == nil || !strings.Contains(err.Error(), "MaxOpenConns 2")) {
				t.Errorf("a pool of %d: %v", n, err)
			}
		}, locker.WithStandby())
	}
}

// Waiters and readers hold by the same proof as whoever holds: all are lost at once.
func TestAllSessionsOfAServerHaveOneProof(t *testing.T) {
	proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		db := f.open()
		defer db.Close()
		other := locker.New(db, locker.WithoutServerCheck())
		defer other.Close()
		taken := lock(t, other, job)
		waited := make(chan advisory.Lock, 1)
		front := lock(t, l, advisory.Int64(2))
		go func() {
			lock, err := l.Lock(context.Background(), job)
			if err != nil {
				t.Error(err)
			}
			waited <- lock
		}()
		time.Sleep(5 * time.Second)
		taken.Unlock()
		won := <-waited
		if l.Stats().Sessions != 2 {
			t.Errorf("%d sessions", l.Stats().Sessions)
		}
		f.cutOff()
		<-front.Context().Done()
		<-won.Context().Done()
		if ended := time.Since(f.lastConfirmed()); ended != standbyTimes.Deadline {
			t.Errorf("they end after %v", ended)
		}
		front.Unlock()
		won.Unlock()
		f.heal()
	})
}
