package locker_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/locker"
)

// triesAny has a reader try any of some keys, and returns where the answer comes.
func triesAny(t *testing.T, l *locker.Locker, keys ...advisory.Key) <-chan advisory.Lock {
	answer := make(chan advisory.Lock, 1)
	go func() {
		lock, ok, err := l.TryLockAny(context.Background(), keys, advisory.Shared)
		if !ok || err != nil {
			t.Errorf("a try of any: %v, %v", ok, err)
		}
		answer <- lock
	}()
	return answer
}

// A writer tries the key after the statement of a TryLockAny was sent, which the server grants: the
// key is not the writer's, who came later.
func TestTryLockAnyIsNotPassedByALaterTry(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		l.Ping(context.Background())
		f.set(func() { f.delay = 30 * time.Millisecond })
		any := triesAny(t, l, job)
		time.Sleep(10 * time.Millisecond)
		if _, ok, err := l.TryLock(context.Background(), job); ok || err != nil {
			t.Errorf("a later try of a writer: %v, %v", ok, err)
		}
		(<-any).Unlock()
		time.Sleep(time.Minute)
		released(t, f, l, job)
	})
}

// A TryLockAny waits for the statement of another reader. A writer queues after it: the reader's
// lock is shared with the TryLockAny, which came before.
func TestTryLockAnyIsNotPassedByALaterWait(t *testing.T) {
	for _, opts := range [][]locker.Option{nil, {locker.WithFencing()}} {
		timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
			l.Ping(context.Background())
			f.set(func() { f.delay = 30 * time.Millisecond })
			first := triesAny(t, l, job)
			time.Sleep(10 * time.Millisecond)
			any := triesAny(t, l, job)
			time.Sleep(10 * time.Millisecond)
			written := make(chan advisory.Lock)
			go func() { written <- lock(t, l, job) }()
			(<-any).Unlock()
			(<-first).Unlock()
			(<-written).Unlock()
			time.Sleep(time.Minute)
			released(t, f, l, job)
		}, opts...)
	}
}

// A TryLockAny is to share a reader's lock, whose session ends before its token comes, and another
// process takes that key: the next key is tried.
func TestTryLockAnyGoesOnAfterALoss(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		next := advisory.Int64(2)
		first := reads(t, l)
		f.set(func() { f.delay = 30 * time.Millisecond })
		any := triesAny(t, l, job, next)
		synctest.Wait()
		f.set(func() {
			f.conns[0].end()
			f.locks[job.String()] = &fakeConn{f: f}
		})
		lock := <-any
		if lock.Key() != next {
			t.Errorf("the lock of %s", lock.Key())
		}
		lock.Unlock()
		if first.Unlock() == nil {
			t.Error("the first lock is not lost")
		}
		time.Sleep(time.Minute)
		released(t, f, l, next)
	}, locker.WithFencing())
}

// Readers and tries of any key come faster than their tokens. Each has its turn in the order in which it came.
func TestReadersAndTriesOfAnyTakeTurns(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		l.Ping(context.Background())
		first := reads(t, l)
		f.set(func() { f.delay = 30 * time.Millisecond })
		var all sync.WaitGroup
		var mu sync.Mutex
		var order []int
		for i := range 100 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				var mine advisory.Lock
				switch i % 3 {
				case 0:
					mine = lock(t, l, job, advisory.Shared)
				case 1:
					mine = reads(t, l)
				default:
					mine = <-triesAny(t, l, job)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(100 * time.Millisecond)
				mine.Unlock()
			})
		}
		all.Wait()
		if !slices.IsSorted(order) {
			t.Errorf("the turns are %v", order)
		}
		first.Unlock()
		time.Sleep(time.Minute)
		released(t, f, l, job)
	}, locker.WithFencing())
}

// The link is slower than a heartbeat, so a lock is shared after another round trip. A reader shares it
// though tries of any key come all the time.
func TestReaderHasATurnAmongTriesOfAny(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		l.Ping(context.Background())
		first := reads(t, l)
		const trip = 800 * time.Millisecond
		f.set(func() { f.delay = trip })
		time.Sleep(5 * time.Second) // the last answer is older than a heartbeat
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				time.Sleep(time.Duration(i)*100*time.Millisecond + time.Millisecond)
				(<-triesAny(t, l, job)).Unlock()
			})
		}
		start := time.Now()
		reads(t, l).Unlock()
		// What is under way comes first: a ping, and whether others wait for the lock.
		if took := time.Since(start); took > 3*trip {
			t.Errorf("a reader's try took %v", took)
		}
		all.Wait()
		first.Unlock()
		time.Sleep(time.Minute)
		released(t, f, l, job)
	})
}
