package locker_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
)

func downgradeLetsReadersIn(t *testing.T, w *world) {
	lock := w.try(t, w.key)
	token := lock.Token()
	w.isTaken(t, w.key, advisory.Shared)
	reader := w.lockLater(t.Context(), advisory.Shared)
	w.waiting(1)
	if err := lock.Downgrade(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lock.Mode() != advisory.Shared || lock.Token() != token || lock.Context().Err() != nil {
		t.Errorf("%v, token %d after %d, %v", lock.Mode(), lock.Token(), token, lock.Context().Err())
	}
	second := granted(t, reader)
	leave := w.occupy(w.key, advisory.Shared)
	w.isTaken(t, w.key)
	if err := lock.Downgrade(t.Context()); err != nil {
		t.Errorf("of a shared one: %v", err)
	}
	harness.Release(t, lock)
	harness.Release(t, second)
	if err := leave(); err != nil {
		t.Error(err)
	}
	w.isFree(t, w.key)
}

func downgradeLeavesNoGap(t *testing.T, w *world) {
	lock := w.try(t, w.key)
	writer := w.lockLater(t.Context())
	w.waiting(1)
	if err := lock.Downgrade(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.stillWaits(t, writer)
	harness.Release(t, lock)
	harness.Release(t, granted(t, writer))
}

func downgradeOfNothing(t *testing.T, w *world) {
	released := w.try(t, w.key)
	harness.Release(t, released)
	harness.IsErr(t, released.Downgrade(t.Context()), advisory.ErrNotHeld)
	leave := w.occupy(w.key)
	none, _, _ := w.TryLock(t.Context(), w.key)
	harness.IsErr(t, none.Downgrade(t.Context()), advisory.ErrNotHeld)
	leave()
	lost := w.try(t, w.key)
	w.lost(t, lost)
	harness.IsErr(t, lost.Downgrade(t.Context()), advisory.ErrLost)
	lost.Unlock()
}

func downgradeCancelled(t *testing.T, w *world) {
	lock := w.try(t, w.key)
	harness.IsErr(t, lock.Downgrade(harness.Cancelled(t)), context.Canceled)
	if lock.Mode() != advisory.Exclusive {
		t.Error(lock.Mode())
	}
	w.isTaken(t, w.key, advisory.Shared)
	harness.Release(t, lock)
	w.isFree(t, w.key)
}

func unlockBesideDowngrade(t *testing.T, w *world) {
	for range 20 {
		lock := w.try(t, w.key)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := lock.Downgrade(t.Context()); err != nil && !errors.Is(err, advisory.ErrNotHeld) {
				t.Error(err)
			}
		})
		wg.Go(func() {
			runtime.Gosched()
			harness.Release(t, lock)
		})
		wg.Wait()
		if err := w.occupy(w.key)(); err != nil {
			t.Error(err)
		}
	}
}
