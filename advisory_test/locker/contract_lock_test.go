package locker_test

import (
	"context"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
)

func keyAndMode(t *testing.T, w *world) {
	for _, m := range harness.Modes {
		lock := w.try(t, w.key, m)
		if lock.Key() != w.key || lock.Mode() != m {
			t.Errorf("%v %v", lock.Key(), lock.Mode())
		}
		harness.Release(t, lock)
		if lock.Key() != w.key || lock.Mode() != m {
			t.Errorf("%v %v after Unlock", lock.Key(), lock.Mode())
		}
	}
}

func tokenGrows(t *testing.T, w *world) {
	var last uint64
	grows := func(lock advisory.Lock) {
		t.Helper()
		if lock.Token() <= last {
			t.Errorf("token %d after %d", lock.Token(), last)
		}
		last = lock.Token()
	}
	for range 3 { // one after the other
		lock := w.try(t, w.key)
		grows(lock)
		harness.Release(t, lock)
	}
	a := w.try(t, w.key) // handed over
	c := w.lockLater(t.Context())
	w.waiting(1)
	grows(a)
	harness.Release(t, a)
	b := granted(t, c)
	grows(b)
	harness.Release(t, b)
	for _, reader := range []advisory.Lock{w.try(t, w.key, advisory.Shared), w.try(t, w.key, advisory.Shared)} {
		grows(reader)
		defer reader.Unlock()
	}
	if lock, _, _ := w.TryLock(t.Context(), w.key); lock.Token() != 0 {
		t.Errorf("token %d without the lock", lock.Token())
	}
}

func contextHasValues(t *testing.T, w *world) {
	lock, err := w.Lock(context.WithValue(t.Context(), harness.Word{}, "here"), w.key)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	if v := lock.Context().Value(harness.Word{}); v != "here" {
		t.Errorf("%v", v)
	}
}

func contextOutlivesCtx(t *testing.T, w *world) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	lock, err := w.Lock(ctx, w.key)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	w.pause()
	if lock.Context().Err() != nil {
		t.Error("it has ended with ctx")
	}
	if _, ok := lock.Context().Deadline(); ok {
		t.Error("it has the deadline of ctx")
	}
	w.isTaken(t, w.key)
	harness.Release(t, lock)
	w.isFree(t, w.key)
}

func contextEndsWithLoss(t *testing.T, w *world) {
	for _, m := range harness.Modes {
		lock := w.try(t, w.key, m)
		if lock.Context().Err() != nil {
			t.Error("it ended early")
		}
		w.lost(t, lock)
		lock.Unlock()
	}
	w.isFree(t, w.key)
}

func contextEndsWithUnlock(t *testing.T, w *world) {
	lock := w.try(t, w.key)
	harness.Release(t, lock)
	if lock.Context().Err() == nil {
		t.Error("it has not ended")
	}
	harness.IsErr(t, context.Cause(lock.Context()), context.Canceled)
}

func contextEndsWithClose(t *testing.T, w *world) {
	lock := w.try(t, w.key)
	if err := w.close(); err != nil {
		t.Error(err)
	}
	harness.Ended(t, lock.Context(), advisory.ErrClosed)
	harness.IsErr(t, lock.Unlock(), advisory.ErrClosed)
	harness.IsErr(t, lock.Unlock(), advisory.ErrNotHeld)
}
