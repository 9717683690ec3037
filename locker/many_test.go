package locker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/locker"
)

func TestCallsWhileManyWaitsEnd(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		f.taken(job)
		if err := l.Ping(context.Background()); err != nil {
			t.Fatal(err)
		}
		f.set(func() { f.delay = 2 * time.Millisecond })
		done := make(chan error, 1000)
		for range 1000 {
			go func() {
				_, err := l.Lock(context.Background(), job, advisory.MaxWait(time.Second))
				done <- err
			}()
		}
		time.Sleep(1003 * time.Millisecond)
		start := time.Now()
		other, ok, err := l.TryLock(context.Background(), advisory.Int64(2))
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		if took := time.Since(start); took > 20*time.Millisecond {
			t.Errorf("TryLock of a free key took %v, with a round trip of 2 ms", took)
		}
		if n := len(f.statements(func(s *fakeStatement) bool { return s.text == lockfn.Holders })); n > 10 {
			t.Errorf("%d times was asked who holds the key", n)
		}
		for range 1000 {
			<-done
		}
		other.Unlock()
	})
}

func TestManyLocksOfAFailedStatementAreReleased(t *testing.T) {
	const n = 3000
	keys := make([]advisory.Key, n)
	for i := range keys {
		keys[i] = advisory.Int64(int64(i + 1))
	}
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		f.set(func() { f.table = 1 << 20 })
		held := lock(t, l, advisory.Int64(1_000_000))
		failed := false
		f.set(func() {
			f.delay = 4 * time.Millisecond
			f.fails = func(text string) error {
				if strings.Contains(text, "a.answers") && !failed {
					failed = true
					return serverError("53200")
				}
				return nil
			}
		})
		if _, ok, err := l.TryLockAll(context.Background(), keys); ok || err == nil {
			t.Errorf("TryLockAll: %v, %v", ok, err)
		}
		time.Sleep(time.Minute)
		if held.Context().Err() != nil {
			t.Errorf("the lock that was held before: %v", context.Cause(held.Context()))
		}
	})
}
