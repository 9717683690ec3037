//go:build unix

package failover_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/failover"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// A doubtLog records the events about the proof.
type doubtLog struct {
	mu     sync.Mutex
	events []advisory.Event
}

func (d *doubtLog) Observe(_ context.Context, e advisory.Event) {
	if e.Kind == advisory.Unconfirmed || e.Kind == advisory.Confirmed {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.events = append(d.events, e)
	}
}

// of returns the events that fit.
func (d *doubtLog) of(fits func(advisory.Event) bool) (found []advisory.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.events {
		if fits(e) {
			found = append(found, e)
		}
	}
	return found
}

func unsafeReason(err error) advisory.UnsafeReason {
	if unsafe, ok := errors.AsType[*advisory.UnsafeServerError](err); ok {
		return unsafe.Reason
	}
	return ""
}

func isAlone(e advisory.Event) bool {
	return e.Kind == advisory.Unconfirmed && unsafeReason(e.Err) == advisory.NoStandby && e.Left == 0
}

func isDoubted(e advisory.Event) bool { return e.Kind == advisory.Unconfirmed && e.Left > 0 }

func isConfirmed(e advisory.Event) bool { return e.Kind == advisory.Confirmed }

// A named is a Locker that does without a standby while there are no names, and what it reports.
type named struct {
	*locker.Locker
	lock advisory.Lock
	log  *doubtLog
	name string
}

// newNamed returns one for each driver. They hold a key each, if there are names.
func newNamed(t *testing.T, n *harness.Node, opts ...locker.Option) (all []*named) {
	t.Helper()
	for i, d := range harness.Drivers[:2] {
		c := &named{log: &doubtLog{}, name: d.Name}
		c.Locker = proofLocker(t, d, n, append(opts, locker.WithStandbyIfNamed(), advisory.WithObserver(c.log))...)
		lock, err := c.Lock(t.Context(), advisory.Int64(int64(i)))
		if err != nil {
			t.Fatalf("%s: %v", d.Name, err)
		}
		c.lock = lock
		all = append(all, c)
	}
	return all
}

// holds checks that the lock is held still.
func (c *named) holds(t *testing.T, when string) {
	t.Helper()
	if err := context.Cause(c.lock.Context()); err != nil {
		t.Fatalf("%s, %s: the lock is lost: %v", c.name, when, err)
	}
}

// The names become empty while a lock is held, in the order of a failover manager: the standby is
// away, and then the names. The lock stays, one event says why, and others are given out. With
// names again proof is required again.
func TestIfNamedDoesWithoutAStandby(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	r := harness.NewReplication(t, 1)
	a, b := r.Primary, r.Standbys[0]

	for _, d := range harness.Drivers[:2] {
		l := proofLocker(t, d, a, locker.WithStandbyIfNamed())
		for what, err := range map[string]error{"Ping": l.Ping(t.Context()), "TryLock": harness.Third(l.TryLock(t.Context(), harness.Key))} {
			if unsafeReason(err) != advisory.NoStandby {
				t.Errorf("%s, never confirmed: %s: %v", d.Name, what, err)
			}
		}
	}

	// With a D of 9.75 s, so that a slow machine empties the names in time.
	a.Synchronous("b")
	times := failover.Of(failover.Default, failover.DefaultHeartbeat)
	all := newNamed(t, a, locker.WithFailover(failover.Default))
	b.Cut()
	for _, c := range all {
		harness.Eventually(t, c.name+": an event for a beat that waits", func() bool { return len(c.log.of(isDoubted)) > 0 })
		if e := c.log.of(isDoubted)[0]; !errors.Is(e.Err, advisory.ErrUnconfirmed) || e.Left >= times.Deadline {
			t.Errorf("%s: %+v", c.name, e)
		}
		if err := c.Ping(t.Context()); !errors.Is(err, advisory.ErrUnconfirmed) {
			t.Errorf("%s: Ping while a beat waits: %v", c.name, err)
		}
	}
	a.Synchronous("")
	for _, c := range all {
		harness.Eventually(t, c.name+": an event for names that are empty", func() bool { return len(c.log.of(isAlone)) > 0 })
	}
	time.Sleep(times.Deadline + times.Beat) // the last confirmation is older than that
	for _, c := range all {
		c.holds(t, "without names")
		if doubts, alone, again := c.log.of(isDoubted), c.log.of(isAlone), c.log.of(isConfirmed); len(doubts) != 1 || len(alone) != 1 || len(again) != 0 {
			t.Errorf("%s: events %v, %v, %v", c.name, doubts, alone, again)
		}
		if err := c.Ping(t.Context()); unsafeReason(err) != advisory.NoStandby {
			t.Errorf("%s: Ping without names: %v", c.name, err)
		}
		lock, ok, err := c.TryLock(t.Context(), advisory.Name("another", c.name))
		if err != nil || !ok {
			t.Fatalf("%s: another lock without names: %v, %v", c.name, ok, err)
		}
		lock.Unlock()
	}
	a.Exec("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
	for i, c := range all {
		harness.Eventually(t, c.name+": the lock of a session that is terminated is lost", func() bool { return c.lock.Context().Err() != nil })
		c.lock.Unlock()
		lock, err := c.Lock(t.Context(), advisory.Int64(int64(i)))
		if err != nil {
			t.Fatalf("%s: a new session without names: %v", c.name, err)
		}
		c.lock = lock
	}

	// There are names again, and the standby is back: it confirms.
	b.Heal()
	b.CatchUp(a)
	a.Synchronous("b")
	for _, c := range all {
		harness.Eventually(t, c.name+": an event for the confirmation", func() bool { return len(c.log.of(isConfirmed)) > 0 })
		c.holds(t, "with names again")
		if err := c.Ping(t.Context()); err != nil {
			t.Errorf("%s: Ping: %v", c.name, err)
		}
	}
	// Proof is required.
	b.Cut()
	for _, c := range all {
		lostUnconfirmed(t, c.lock)
	}
}

// Two servers alone: the standby is promoted while its primary lives, and has no standby of its
// own. It gives the key out after its grace, and by then the holder at the old primary, which has
// names, has stopped.
func TestIfNamedOnTwoServersAlone(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	r := harness.NewReplication(t, 1)
	a, b := r.Primary, r.Standbys[0]
	a.Synchronous("b")
	type client struct {
		l     *locker.Locker // which was confirmed before the promotion
		point func(*harness.Node)
		lock  advisory.Lock
	}
	olds := newNamed(t, a)
	var clients []client
	for _, d := range harness.Drivers[:2] {
		db, p := newPointer(t, d, a)
		l := locker.New(db, locker.WithFailover(proofTimes.Failover), locker.WithStandbyIfNamed())
		t.Cleanup(func() { l.Close() })
		lock, ok := harness.LockerTry(t, l, advisory.Name("confirmed", d.Name))
		if !ok {
			t.Fatal("the key is taken")
		}
		clients = append(clients, client{l, p.point, lock})
	}
	b.Cut()
	cut := time.Now()
	b.Promote()
	var got sync.WaitGroup
	for i, c := range clients {
		c.point(b)
		got.Go(func() {
			lostUnconfirmed(t, c.lock) // and it opens its next session at b
			lock, err := c.l.Lock(t.Context(), advisory.Int64(int64(i)))
			if err != nil {
				t.Errorf("%s: %v", olds[i].name, err)
				return
			}
			at := time.Now()
			select {
			case <-olds[i].lock.Context().Done():
			default:
				t.Errorf("%s: both hold the key", olds[i].name)
			}
			t.Logf("%s: the promoted server gave the key out %.2f s after the cut", olds[i].name, at.Sub(cut).Seconds())
			if err := c.l.Ping(t.Context()); unsafeReason(err) != advisory.NoStandby {
				t.Errorf("%s: Ping at the promoted server: %v", olds[i].name, err)
			}
			if err := lock.Unlock(); err != nil {
				t.Errorf("%s: %v", olds[i].name, err)
			}
		})
	}
	got.Wait()
	for i, d := range harness.Drivers[:2] {
		lostUnconfirmed(t, olds[i].lock)
		l := proofLocker(t, d, b, locker.WithStandbyIfNamed())
		if _, _, err := l.TryLock(t.Context(), harness.Key); unsafeReason(err) != advisory.NoStandby {
			t.Errorf("%s: a Locker that was never confirmed: %v", d.Name, err)
		}
	}
}

// What WithStandbyIfNamed does not promise: an old primary that is cut off, and whose names are
// emptied, keeps its holders. That ends when the pool has led to the new primary.
func TestIfNamedOnAnIsolatedPrimaryWithoutNames(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	r := harness.NewReplication(t, 1)
	a, b := r.Primary, r.Standbys[0]
	a.Synchronous("b")
	type client struct {
		l     *locker.Locker
		plain *locker.Locker
		point func(*harness.Node)
		lock  advisory.Lock
	}
	var clients []client
	for i, d := range harness.Drivers[:2] {
		db, p := newPointer(t, d, a)
		l := locker.New(db, locker.WithStandbyIfNamed())
		plain := locker.New(db, locker.WithoutServerCheck())
		t.Cleanup(func() { l.Close(); plain.Close() })
		lock, ok := harness.LockerTry(t, l, advisory.Int64(int64(i)))
		if !ok {
			t.Fatal("the key is taken")
		}
		clients = append(clients, client{l, plain, p.point, lock})
	}
	b.Cut()
	a.Synchronous("")
	b.Promote()
	for i, d := range harness.Drivers[:2] {
		c := clients[i]
		if _, ok := harness.LockerTry(t, proofLocker(t, d, b), advisory.Int64(int64(i))); !ok {
			t.Errorf("%s: the promoted server does not give the key out", d.Name)
		}
		if err := context.Cause(c.lock.Context()); err != nil {
			t.Errorf("%s: the old holder has stopped, which is better than docs/failover.md says: %v", d.Name, err)
		}
		c.point(b)
		if err := c.plain.Ping(t.Context()); err != nil {
			t.Fatalf("%s: %v", d.Name, err)
		}
		harness.Eventually(t, d.Name+": the lock on the old primary is lost", func() bool { return c.lock.Context().Err() != nil })
		if cause := context.Cause(c.lock.Context()); !errors.Is(cause, advisory.ErrLost) || unsafeReason(cause) != advisory.StalePrimary {
			t.Errorf("%s: the lock's Context ends with %v", d.Name, cause)
		}
		c.lock.Unlock()
	}
}
