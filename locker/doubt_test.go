package locker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/locker"
)

// A doubtLog records the events about the proof, and when they came.
type doubtLog struct {
	mu     sync.Mutex
	events []advisory.Event
	at     []time.Time
	during func() // if set, called in each
}

func (d *doubtLog) Observe(_ context.Context, e advisory.Event) {
	if e.Kind != advisory.Unconfirmed && e.Kind != advisory.Confirmed {
		return
	}
	d.mu.Lock()
	d.events, d.at = append(d.events, e), append(d.at, time.Now())
	d.mu.Unlock()
	if d.during != nil {
		d.during()
	}
}

// are checks the kinds of the events so far, and returns them.
func (d *doubtLog) are(t *testing.T, kinds ...advisory.EventKind) []advisory.Event {
	t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	ok := len(d.events) == len(kinds)
	for i := range kinds {
		ok = ok && d.events[i].Kind == kinds[i]
	}
	if !ok {
		t.Fatalf("the events are %v, want %v", d.events, kinds)
	}
	return d.events
}

func reason(err error) advisory.UnsafeReason {
	if unsafe, ok := errors.AsType[*advisory.UnsafeServerError](err); ok {
		return unsafe.Reason
	}
	return ""
}

// A beat that waits for longer than the interval is reported once, with the time that is left, and
// so is the next one that is confirmed.
func TestAnUnconfirmedBeatIsReportedOnce(t *testing.T) {
	var d doubtLog
	proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		held := lock(t, l, job)
		time.Sleep(standbyTimes.Beat / 2)
		d.are(t)
		f.cutOff()
		time.Sleep(standbyTimes.Beat/2 + standbyTimes.Beat - time.Nanosecond)
		d.are(t)
		time.Sleep(time.Nanosecond)
		e := d.are(t, advisory.Unconfirmed)[0]
		if want := standbyTimes.Deadline - 2*standbyTimes.Beat; e.Left != want || !errors.Is(e.Err, advisory.ErrUnconfirmed) || !strings.Contains(e.Err.Error(), "waits for a standby") {
			t.Errorf("%+v, want %v left", e, want)
		}
		time.Sleep(standbyTimes.Beat / 2)
		f.heal()
		if e := d.are(t, advisory.Unconfirmed, advisory.Confirmed)[1]; e.Waited != standbyTimes.Beat/2 || e.Err != nil {
			t.Errorf("%+v", e)
		}
		time.Sleep(time.Minute)
		d.are(t, advisory.Unconfirmed, advisory.Confirmed)
		f.cutOff()
		<-held.Context().Done()
		held.Unlock()
		f.heal()
		d.are(t, advisory.Unconfirmed, advisory.Confirmed, advisory.Unconfirmed)
	}, advisory.WithObserver(&d))
}

// A beat that fails is reported at once, however many fail.
func TestABeatThatFailsIsReported(t *testing.T) {
	var d doubtLog
	proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		held := lock(t, l, job)
		f.set(func() { f.refused = errors.New("too many connections") })
		f.endWitness()
		time.Sleep(standbyTimes.Deadline / 2)
		if e := d.are(t, advisory.Unconfirmed)[0]; !errors.Is(e.Err, advisory.ErrUnconfirmed) || e.Left <= standbyTimes.Deadline/2 || e.Left > standbyTimes.Deadline {
			t.Errorf("%+v", e)
		}
		f.set(func() { f.refused = nil })
		time.Sleep(standbyTimes.Beat)
		d.are(t, advisory.Unconfirmed, advisory.Confirmed)
		f.set(func() { f.replica.names = "" })
		time.Sleep(standbyTimes.Beat)
		if e := d.are(t, advisory.Unconfirmed, advisory.Confirmed, advisory.Unconfirmed)[2]; reason(e.Err) != advisory.NoStandby || !errors.Is(e.Err, advisory.ErrUnconfirmed) || e.Left == 0 {
			t.Errorf("%+v", e)
		}
		<-held.Context().Done()
		held.Unlock()
	}, advisory.WithObserver(&d))
}

// An Observer that blocks, or asks the Locker, delays no beat.
func TestAnObserverOfDoubtDelaysNoBeat(t *testing.T) {
	var d doubtLog
	proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		held := lock(t, l, job)
		d.during = func() { l.Stats(); l.Holds(job); time.Sleep(time.Minute) }
		for range 3 {
			f.endWitness()
			time.Sleep(2 * standbyTimes.Deadline)
		}
		if held.Context().Err() != nil {
			t.Error(context.Cause(held.Context()))
		}
		time.Sleep(10 * time.Minute)
		d.are(t, advisory.Unconfirmed, advisory.Confirmed, advisory.Unconfirmed, advisory.Confirmed, advisory.Unconfirmed, advisory.Confirmed)
	}, advisory.WithObserver(&d))
}

// Each event is reported once, in order, also if it comes at the moment at which the one before it has
// been reported, or while that is.
func TestEachEventOfDoubtIsReportedOnce(t *testing.T) {
	for name, slow := range map[string]time.Duration{"fast": 0, "slow": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			var d doubtLog
			proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
				held := lock(t, l, job)
				var later []string
				for i := range 100 {
					later = append(later, "", fmt.Sprintf("reason %d.", i+1))
				}
				locker.ChangeDoubtWhenReported(l, later[:100])
				texts := append([]string{"reason 0."}, later...)
				var started atomic.Int32
				d.during = func() {
					time.Sleep(slow)
					if n := started.Add(1); n > 100 && int(n) < len(texts) {
						locker.ChangeDoubt(l, texts[n]) // while one is reported
					}
				}
				locker.ChangeDoubt(l, texts[0])
				time.Sleep(standbyTimes.Beat / 2)
				var kinds []advisory.EventKind
				for i := range texts {
					kinds = append(kinds, []advisory.EventKind{advisory.Unconfirmed, advisory.Confirmed}[i%2])
				}
				for i, e := range d.are(t, kinds...) {
					if texts[i] != "" && !strings.Contains(e.Err.Error(), texts[i]) {
						t.Errorf("event %d is %v, want %s", i, e.Err, texts[i])
					}
				}
				held.Unlock()
			}, advisory.WithObserver(&d))
		})
	}
}

// A Locker that has never had a confirmation is refused without names, whatever its option.
func TestIfNamedRefusesAtOpening(t *testing.T) {
	proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		f.set(func() { f.replica.names = "" })
		_, _, tried := l.TryLock(t.Context(), job)
		for what, err := range map[string]error{"Ping": l.Ping(t.Context()), "TryLock": tried} {
			if reason(err) != advisory.NoStandby {
				t.Errorf("%s: %v", what, err)
			}
		}
	}, locker.WithStandbyIfNamed())
}

// Names that become empty cost nothing then, and proof is required once there are names.
func TestIfNamedDoesWithoutAStandby(t *testing.T) {
	var d doubtLog
	proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		held := lock(t, l, job)
		f.set(func() { f.replica.names = "" })
		time.Sleep(time.Minute)
		if held.Context().Err() != nil {
			t.Fatal(context.Cause(held.Context()))
		}
		if e := d.are(t, advisory.Unconfirmed)[0]; reason(e.Err) != advisory.NoStandby || e.Left != 0 {
			t.Errorf("%+v", e)
		}
		if err := l.Ping(t.Context()); reason(err) != advisory.NoStandby {
			t.Errorf("Ping: %v", err)
		}
		lock(t, l, advisory.Int64(2)).Unlock()
		f.set(func() { f.replica.names = "b" })
		time.Sleep(standbyTimes.Beat)
		d.are(t, advisory.Unconfirmed, advisory.Confirmed)
		if err := l.Ping(t.Context()); err != nil {
			t.Errorf("Ping: %v", err)
		}
		f.set(func() { f.replica.names = "" })
		time.Sleep(standbyTimes.Beat)
		synctest.Wait()
		last := f.lastConfirmed() // it was answered
		f.cutOff()
		f.set(func() { f.replica.names = "b" })
		<-held.Context().Done()
		defer held.Unlock()
		if ended := time.Since(last); ended != standbyTimes.Deadline {
			t.Errorf("it ends %v after the last beat that was answered", ended)
		}
		if cause := context.Cause(held.Context()); !errors.Is(cause, advisory.ErrUnconfirmed) {
			t.Error(cause)
		}
		f.heal()
	}, locker.WithStandbyIfNamed(), advisory.WithObserver(&d))
}

// What an Unconfirmed event began is ended by a Confirmed one, also if the locks were given back or lost
// meanwhile, and the Locker's sessions closed. An idle Locker asks no server, so it is used again first.
func TestConfirmedComesAfterTheLocksAreGone(t *testing.T) {
	for name, lost := range map[string]bool{"given back": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			var d doubtLog
			proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
				held := lock(t, l, job)
				f.cutOff()
				time.Sleep(2 * standbyTimes.Beat)
				d.are(t, advisory.Unconfirmed)
				if !lost {
					held.Unlock()
				}
				time.Sleep(time.Minute)
				held.Unlock()
				f.heal()
				d.are(t, advisory.Unconfirmed)
				start := d.at[0]
				if err := l.Ping(t.Context()); err != nil {
					t.Error(err)
				}
				if e := d.are(t, advisory.Unconfirmed, advisory.Confirmed)[1]; e.Waited != time.Since(start) {
					t.Errorf("%+v, want %v", e, time.Since(start))
				}
				time.Sleep(time.Minute)
				lock(t, l, job).Unlock()
				d.are(t, advisory.Unconfirmed, advisory.Confirmed)
			}, advisory.WithObserver(&d))
		})
	}
}

// A Locker that rests and opens its session again reports names that are still missing no more, and
// reports it when they are back.
func TestMissingNamesAreReportedOnce(t *testing.T) {
	var d doubtLog
	proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		lock(t, l, job).Unlock()
		f.set(func() { f.replica.names = "" })
		for range 3 {
			before := f.opened()
			lock(t, l, job).Unlock()
			time.Sleep(time.Minute)
			if n := f.connections(); n != 0 {
				t.Fatalf("%d connections are open", n)
			}
			d.are(t, advisory.Unconfirmed)
			lock(t, l, job).Unlock()
			if f.opened() == before {
				t.Fatal("no session was opened again")
			}
		}
		time.Sleep(time.Minute)
		f.set(func() { f.replica.names = "b" })
		d.are(t, advisory.Unconfirmed)
		lock(t, l, job).Unlock()
		d.are(t, advisory.Unconfirmed, advisory.Confirmed)
		time.Sleep(time.Minute)
		f.set(func() { f.replica.names = "" })
		lock(t, l, job).Unlock()
		e := d.are(t, advisory.Unconfirmed, advisory.Confirmed, advisory.Unconfirmed)[2]
		if reason(e.Err) != advisory.NoStandby || e.Left != 0 {
			t.Errorf("%+v", e)
		}
	}, locker.WithStandbyIfNamed(), advisory.WithObserver(&d))
}

// While sessions are on two servers the events are about the one that is in doubt. When its locks are
// lost, the other one is confirmed.
func TestDoubtOfOneOfTwoServers(t *testing.T) {
	var d doubtLog
	proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		held := lock(t, l, job)
		moved := f.opened()
		f.set(func() {
			f.replica.id = func(c *fakeConn) string {
				if c.pid > moved {
					return "1 2"
				}
				return "1 1"
			}
		})
		f.taken(advisory.Int64(2))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.Lock(ctx, advisory.Int64(2)) // on a session at the other server
		time.Sleep(standbyTimes.Beat / 2)
		f.set(func() { f.silent = func(s *fakeStatement) bool { return isBeat(s) && s.pid <= moved } })
		time.Sleep(2*standbyTimes.Beat + standbyTimes.Beat/2)
		if held.Context().Err() != nil {
			t.Fatal(context.Cause(held.Context()))
		}
		if e := d.are(t, advisory.Unconfirmed)[0]; e.Left == 0 {
			t.Errorf("%+v", e)
		}
		<-held.Context().Done()
		held.Unlock()
		d.are(t, advisory.Unconfirmed, advisory.Confirmed)
		if n := len(f.statements(func(s *fakeStatement) bool { return isBeat(s) && s.pid > moved })); n < 3 {
			t.Errorf("%d beats at the other server", n)
		}
	}, advisory.WithObserver(&d))
}

// New sessions are opened likewise, after the grace of the server.
func TestIfNamedAtAPromotedServer(t *testing.T) {
	proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		lock(t, l, job).Unlock()
		time.Sleep(15 * time.Second) // its session is closed
		f.set(func() { f.replica.names, f.replica.grace = "", standbyTimes.Grace })
		start := time.Now()
		if _, ok, err := l.TryLock(t.Context(), job); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if took := time.Since(start); took != standbyTimes.Grace {
			t.Errorf("the first lock after %v, want %v", took, standbyTimes.Grace)
		}
	}, locker.WithStandbyIfNamed())
}

// The server reads its settings while a beat waits, and the names are empty from then on. The beat
// that waited counts for nothing, and the next one does.
func TestIfNamedAfterABeatThatAReloadEnded(t *testing.T) {
	for _, late := range []bool{false, true} {
		proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
			held := lock(t, l, job)
			last := f.lastConfirmed()
			f.cutOff()
			wait := 2 * standbyTimes.Beat
			if late { // and there is no later beat within D
				wait = standbyTimes.Deadline - standbyTimes.Beat/4
			}
			time.Sleep(wait)
			f.set(func() { f.replica.loads++; f.replica.names = "" })
			f.heal()
			if late {
				f.set(func() { f.refused = errors.New("too many connections") })
				f.endWitness()
				<-held.Context().Done()
				if ended := time.Since(last); ended != standbyTimes.Deadline {
					t.Errorf("it ends after %v", ended)
				}
				f.set(func() { f.refused = nil })
			} else if time.Sleep(time.Minute); held.Context().Err() != nil {
				t.Error(context.Cause(held.Context()))
			}
			held.Unlock()
		}, locker.WithStandbyIfNamed())
	}
}

// Ping reports what is in doubt at any time, without a question of its own.
func TestPingReportsDoubt(t *testing.T) {
	proven(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		held := lock(t, l, job)
		if err := l.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.cutOff()
		time.Sleep(2*standbyTimes.Beat + standbyTimes.Beat/2)
		if err := l.Ping(t.Context()); !errors.Is(err, advisory.ErrUnconfirmed) || !strings.Contains(err.Error(), "waits for a standby") {
			t.Errorf("while a beat waits: %v", err)
		}
		f.heal()
		time.Sleep(standbyTimes.Beat + standbyTimes.Beat/2)
		if err := l.Ping(t.Context()); err != nil {
			t.Errorf("when it is confirmed: %v", err)
		}
		f.set(func() { f.replica.names = "" })
		time.Sleep(standbyTimes.Beat + standbyTimes.Beat/2)
		if err := l.Ping(t.Context()); reason(err) != advisory.NoStandby || !errors.Is(err, advisory.ErrUnconfirmed) {
			t.Errorf("without names: %v", err)
		}
		if held.Context().Err() != nil {
			t.Error(context.Cause(held.Context()))
		}
		f.set(func() { f.replica.names = "b" })
		held.Unlock()
	})
}

// Another Locker of the pool has led to a newer timeline of the system. A session on the old one is
// on an old primary: Ping says so at once, and the locks are lost at the next beat.
func TestASessionOnAnOlderTimelineIsLost(t *testing.T) {
	pooled(t, func(t *testing.T, f *fakeServer, db *sql.DB, l *locker.Locker) {
		held := lock(t, l, job)
		time.Sleep(standbyTimes.Beat / 2)
		f.set(func() { f.timeline = "00000002" })
		other := locker.New(db, locker.WithoutServerCheck())
		defer other.Close()
		if err := other.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.Ping(t.Context()); reason(err) != advisory.StalePrimary {
			t.Errorf("Ping: %v", err)
		}
		if err := held.Context().Err(); err != nil {
			t.Errorf("it is lost before: %v", context.Cause(held.Context()))
		}
		time.Sleep(standbyTimes.Beat / 2)
		synctest.Wait()
		if cause := context.Cause(held.Context()); !errors.Is(cause, advisory.ErrLost) || reason(cause) != advisory.StalePrimary {
			t.Errorf("the lock's Context ends with %v", cause)
		}
		held.Unlock()
		if err := l.Ping(t.Context()); err != nil { // at the new primary
			t.Errorf("Ping: %v", err)
		}
	}, locker.WithStandby(), locker.WithFailover(standbyTimes.Failover))
}
