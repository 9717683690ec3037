package locker_test

import (
	"context"
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

// Readers come faster than their tokens. A TryLockAny has its turn among them.
func TestTryLockAnyHasATurnAmongReaders(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		l.Ping(context.Background())
		f.set(func() { f.delay = 30 * time.Millisecond })
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				lock := lock(t, l, job, advisory.Shared)
				time.Sleep(100 * time.Millisecond)
				lock.Unlock()
			})
		}
		time.Sleep(105 * time.Millisecond)
		start := time.Now()
		(<-triesAny(t, l, job)).Unlock()
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("a try of any took %v", took)
		}
		all.Wait()
		time.Sleep(time.Minute)
		released(t, f, l, job)
	}, locker.WithFencing())
}
