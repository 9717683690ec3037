package locker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// long is longer than any test.
var long = locker.HoldAtLeast(time.Hour)

func TestHoldAtLeastIsNotForWhatWasTakenInVain(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a, b := p.Locker(t), p.Locker(t)
		keys := harness.KeysUpTo(3)
		harness.LockerTry(t, a, keys[1])
		if _, ok, err := b.TryLockAll(t.Context(), keys, long); ok || err != nil {
			t.Error(ok, err)
		}
		if _, err := b.LockAll(t.Context(), keys, long, advisory.MaxWait(50*time.Millisecond)); !errors.Is(err, advisory.ErrNotAcquired) {
			t.Error(err)
		}
		harness.Eventually(t, "the others are free again", func() bool {
			held, waiting := p.Locks(t)
			return held == 1 && waiting == 0
		})
	})
}

func TestShutdownDoesNotWaitLongerThanItsCtx(t *testing.T) {
	pgtest.Slow(t)
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		l := locker.New(p.DB)
		lock, ok, err := l.TryLock(t.Context(), harness.Key, long)
		if !ok {
			t.Fatal(err)
		}
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := l.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		p.NoLocks(t)
	})
}

func TestNothingIsGrantedAfterClose(t *testing.T) {
	pgtest.Slow(t)
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		for range 20 {
			l := locker.New(p.DB)
			if err := l.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			type answer struct {
				lock advisory.Lock
				ok   bool
			}
			got := make(chan answer, 8)
			for range cap(got) {
				go func() {
					lock, ok, _ := l.TryLockAny(context.Background(), harness.KeysUpTo(8))
					got <- answer{lock, ok}
				}()
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			for range cap(got) {
				if a := <-got; a.ok && a.lock.Context().Err() == nil {
					t.Fatal("a lock of a closed Locker lives on")
				}
			}
		}
		p.NoLocks(t)
	})
}
