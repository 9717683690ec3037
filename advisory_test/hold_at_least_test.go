package advisory_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// long is longer than any test.
var long = locker.HoldAtLeast(time.Hour)

func TestHoldAtLeastIsNotForWhatWasTakenInVain(t *testing.T) {
	eachDriver(t, func(t *testing.T, p *pool) {
		a, b := p.locker(t), p.locker(t)
		keys := keysUpTo(3)
		lockerTry(t, a, keys[1])
		if _, ok, err := b.TryLockAll(t.Context(), keys, long); ok || err != nil {
			t.Error(ok, err)
		}
		if _, err := b.LockAll(t.Context(), keys, long, advisory.MaxWait(50*time.Millisecond)); !errors.Is(err, advisory.ErrNotAcquired) {
			t.Error(err)
		}
		eventually(t, "the others are free again", func() bool {
			held, waiting := p.locks(t)
			return held == 1 && waiting == 0
		})
	})
}

func TestShutdownDoesNotWaitLongerThanItsCtx(t *testing.T) {
	pgtest.Slow(t)
	eachDriver(t, func(t *testing.T, p *pool) {
		l := locker.New(p.DB)
		lock, ok, err := l.TryLock(t.Context(), key, long)
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
		p.noLocks(t)
	})
}

func TestNothingIsGrantedAfterClose(t *testing.T) {
	pgtest.Slow(t)
	eachDriver(t, func(t *testing.T, p *pool) {
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
					lock, ok, _ := l.TryLockAny(context.Background(), keysUpTo(8))
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
		p.noLocks(t)
	})
}
