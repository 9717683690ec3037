package locker_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/locker"
)

func unlockReleases(t *testing.T, w *world) {
	lock := w.try(t, w.key)
	w.isTaken(t, w.key)
	harness.Release(t, lock)
	if err := w.occupy(w.key)(); err != nil { // at once
		t.Error(err)
	}
	a, b := w.try(t, w.key, advisory.Shared), w.try(t, w.key, advisory.Shared)
	harness.Release(t, a)
	w.isTaken(t, w.key)
	harness.Release(t, b)
	if err := w.occupy(w.key)(); err != nil {
		t.Error(err)
	}
}

func secondUnlock(t *testing.T, w *world) {
	lock := w.try(t, w.key)
	harness.Release(t, lock)
	next := w.try(t, w.key)
	err := lock.Unlock()
	harness.IsErr(t, err, advisory.ErrNotHeld)
	if err == nil || !strings.Contains(err.Error(), w.key.String()) {
		t.Errorf("%v does not name the key", err)
	}
	w.isTaken(t, w.key)
	if next.Context().Err() != nil {
		t.Error("the next holder's Context has ended")
	}
	harness.Release(t, next)
}

func unlockAfterLoss(t *testing.T, w *world) {
	lock := w.try(t, w.key)
	w.lost(t, lock)
	harness.IsErr(t, lock.Unlock(), advisory.ErrLost)
	harness.IsErr(t, lock.Unlock(), advisory.ErrNotHeld)
}

func unlockAfterLossHarmsNobody(t *testing.T, w *world) {
	lost := w.try(t, w.key)
	w.lost(t, lost)
	next := w.try(t, w.key)
	harness.IsErr(t, lost.Unlock(), advisory.ErrLost)
	w.isTaken(t, w.key)
	if next.Context().Err() != nil {
		t.Error("the next holder's Context has ended")
	}
	harness.Release(t, next)
	leave := w.occupy(w.key)
	harness.IsErr(t, lost.Unlock(), advisory.ErrNotHeld)
	w.isTaken(t, w.key)
	if err := leave(); err != nil {
		t.Error(err)
	}
}

func unlockRaces(t *testing.T, w *world) {
	lock := w.try(t, w.key)
	var released atomic.Int64
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			err := lock.Unlock()
			if err == nil {
				released.Add(1)
				return
			}
			harness.IsErr(t, err, advisory.ErrNotHeld)
		})
	}
	wg.Wait()
	if n := released.Load(); n != 1 {
		t.Errorf("released %d times", n)
	}
	w.isFree(t, w.key)
}

func holdsAtLeast(t *testing.T, w *world) {
	const least = 300 * time.Millisecond
	start := time.Now()
	lock := w.try(t, w.key, locker.HoldAtLeast(least))
	harness.Release(t, lock)
	harness.Ended(t, lock.Context(), context.Canceled)
	harness.IsErr(t, lock.Unlock(), advisory.ErrNotHeld)
	lock, err := w.Lock(t.Context(), w.key, locker.HoldAtLeast(least))
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < least {
		t.Errorf("free after %v", took)
	}
	w.lost(t, lock)
	harness.IsErr(t, lock.Unlock(), advisory.ErrLost)
	start = time.Now()
	if err := w.Do(t.Context(), w.key, func(context.Context) error { return nil }, locker.HoldAtLeast(least)); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took < least {
		t.Errorf("Do returned after %v", took)
	}
	start = time.Now()
	harness.Release(t, w.try(t, w.key, locker.HoldAtLeast(least)))
	if err := w.close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took < least {
		t.Errorf("Close returned after %v", took)
	}
}
