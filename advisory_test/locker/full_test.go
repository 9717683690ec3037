package locker_test

import (
	"context"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// occupied returns a Locker of four connections that holds n locks which it won by waiting, on
// each of those that may wait.
func occupied(t *testing.T, p *harness.Pool, n int) *locker.Locker {
	t.Helper()
	l, other := p.Locker(t, locker.WithMaxConns(4)), p.Locker(t)
	for i := 0; i < n; i += 3 {
		keys := []advisory.Key{advisory.Pair(9, int32(i)), advisory.Pair(9, int32(i+1)), advisory.Pair(9, int32(i+2))}
		theirs, ok, err := other.TryLockAll(context.Background(), keys)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		got := make(chan error, len(keys))
		for _, k := range keys {
			go func() { _, err := l.Lock(context.Background(), k); got <- err }()
		}
		harness.Eventually(t, "all wait", func() bool { return l.Stats().Waiting == len(keys) })
		if i == 0 {
			harness.Eventually(t, "on the server", func() bool { _, w := p.Locks(t); return w == len(keys) })
		}
		theirs.Unlock()
		for range keys {
			if err := <-got; err != nil {
				t.Fatal(err)
			}
		}
	}
	return l
}

// A Locker all of whose sessions hold locks has its turn as often as others who wait.
func TestLockerWhoseSessionsHoldHasItsTurns(t *testing.T) {
	pgtest.Slow(t)
	harness.Fair(t, func(t *testing.T, p *harness.Pool) {
		for _, held := range []int{3, 99} {
			l := occupied(t, p, held)
			stop := compete(t, p, advisory.Exclusive, 20*time.Millisecond,
				ofLocker("a", p.Locker(t)), ofLocker("b", p.Locker(t)), ofLocker("occupied", l))
			time.Sleep(4 * time.Second)
			turns := stop()
			t.Logf("turns of two Lockers, and of one that holds %d: %d", held, turns)
			if n := l.Stats().Sessions; n > 4 {
				t.Errorf("%d connections", n)
			}
			if 3*turns[2] < min(turns[0], turns[1]) {
				t.Errorf("one that holds %d locks had %d turns, others %d", held, turns[2], turns[:2])
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// A writer of such a Locker gets its turn among another's readers, who overlap.
func TestWriterOfALockerWhoseSessionsHoldAmongReaders(t *testing.T) {
	pgtest.Slow(t)
	harness.Fair(t, func(t *testing.T, p *harness.Pool) {
		l := occupied(t, p, 3)
		readers := p.Locker(t)
		stop := compete(t, p, advisory.Shared, 300*time.Millisecond, ofLocker("a", readers), ofLocker("b", readers), ofLocker("c", readers))
		defer stop()
		start := time.Now()
		lock, err := l.Lock(context.Background(), harness.Key, advisory.MaxWait(30*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("the writer waited for %v", time.Since(start))
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// What callers want of a session that waits while it holds comes at once, and not at the end of its
// slice.
func TestUnlockOnASessionThatWaits(t *testing.T) {
	pgtest.Slow(t)
	harness.Fair(t, func(t *testing.T, p *harness.Pool) {
		l, other := p.Locker(t, locker.WithMaxConns(2)), p.Locker(t)
		theirs, _ := harness.LockerTry(t, other, harness.Key)
		second, _ := harness.LockerTry(t, other, advisory.Int64(2))
		first := make(chan advisory.Lock, 1)
		wait := func(k advisory.Key) {
			lock, err := l.Lock(context.Background(), k)
			if err != nil {
				t.Error(err)
			}
			first <- lock
		}
		go wait(advisory.Int64(2))
		harness.Eventually(t, "it waits", func() bool { _, w := p.Locks(t); return w == 1 })
		second.Unlock()
		held := <-first // on the only session that may wait
		go wait(harness.Key)
		harness.Eventually(t, "it waits, and holds", func() bool { _, w := p.Locks(t); return w == 1 })
		time.Sleep(2 * harness.Heartbeat)
		start := time.Now()
		if err := held.Unlock(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 2*time.Second { // a slice is of 3.25 s
			t.Errorf("Unlock took %v", took)
		} else {
			t.Logf("Unlock took %v", took)
		}
		theirs.Unlock()
		if err := (<-first).Unlock(); err != nil {
			t.Error(err)
		}
		p.NoLocks(t)
	})
}

// A session that holds a and waits for b is no reason for a deadlock: the work under a does not
// wait for b. Who holds b and waits plainly for a gets it, whoever waited first.
func TestASessionThatHoldsAndWaitsIsNoDeadlock(t *testing.T) {
	pgtest.Slow(t)
	harness.Fair(t, func(t *testing.T, p *harness.Pool) {
		for _, plainFirst := range []bool{false, true} {
			a, b := advisory.Int64(1), advisory.Int64(2)
			l, other := p.Locker(t, locker.WithMaxConns(2)), p.Locker(t)
			theirs, _ := harness.LockerTry(t, other, a)
			got := make(chan advisory.Lock, 1)
			wait := func(k advisory.Key) {
				lock, err := l.Lock(context.Background(), k)
				if err != nil {
					t.Error(err)
				}
				got <- lock
			}
			go wait(a)
			harness.Eventually(t, "it waits", func() bool { _, w := p.Locks(t); return w == 1 })
			theirs.Unlock()
			held := <-got // on the only session that may wait
			plain := p.NewConn(t)
			harness.TryLock(t, plain, b)
			blocked := make(chan error, 1)
			block := func() {
				_, err := plain.ExecContext(context.Background(), "SELECT pg_catalog.pg_advisory_lock("+a.SQL()+")")
				blocked <- err
			}
			if plainFirst {
				go block()
				time.Sleep(900 * time.Millisecond) // a moment before the server looks for a deadlock
				go wait(b)
			} else {
				go wait(b)
				harness.Eventually(t, "it waits, and holds", func() bool { _, w := p.Locks(t); return w == 1 })
				go block()
			}
			select {
			case err := <-blocked:
				t.Fatalf("the plain wait ended: %v", err)
			case <-time.After(4 * time.Second):
			}
			if err := held.Unlock(); err != nil {
				t.Error(err)
			}
			if err := <-blocked; err != nil {
				t.Fatal(err)
			}
			harness.Unlock(t, plain, b)
			if err := (<-got).Unlock(); err != nil {
				t.Error(err)
			}
			harness.Unlock(t, plain, a)
			p.NoLocks(t)
		}
	})
}
