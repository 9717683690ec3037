package locker_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
)

func tryDo(t *testing.T, w *world) {
	failure := errors.New("failure")
	ran, err := w.TryDo(t.Context(), w.key, func(context.Context) error { w.isTaken(t, w.key); return failure })
	if !ran || err != failure {
		t.Errorf("%v, %v", ran, err)
	}
	ran, err = w.TryDo(t.Context(), w.key, func(context.Context) error { return nil }, advisory.Shared)
	if !ran || err != nil {
		t.Errorf("%v, %v", ran, err)
	}
	w.isFree(t, w.key)
}

func doRunsUnderTheLock(t *testing.T, w *world) {
	for _, m := range harness.Modes {
		ran := 0
		err := w.Do(t.Context(), w.key, func(context.Context) error {
			ran++
			w.isTaken(t, w.key)
			return nil
		}, m)
		if ran != 1 || err != nil {
			t.Errorf("ran %d times: %v", ran, err)
		}
		if err := w.occupy(w.key)(); err != nil { // at once
			t.Error(err)
		}
	}
}

func doReturnsError(t *testing.T, w *world) {
	failure := errors.New("failure")
	if err := w.Do(t.Context(), w.key, func(context.Context) error { return failure }); err != failure {
		t.Errorf("%v", err)
	}
	w.isFree(t, w.key)
}

func doCtxEndsWithCtx(t *testing.T, w *world) {
	reason := errors.New("reason")
	ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), harness.Word{}, "here"))
	err := w.Do(ctx, w.key, func(ctx context.Context) error {
		if ctx.Err() != nil || ctx.Value(harness.Word{}) != "here" {
			t.Errorf("%v, %v", ctx.Err(), ctx.Value(harness.Word{}))
		}
		cancel(reason)
		harness.Ended(t, ctx, reason)
		w.isTaken(t, w.key) // until fn has returned
		return ctx.Err()
	})
	if err != context.Canceled {
		t.Errorf("%v", err)
	}
	w.isFree(t, w.key)
	ctx, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	w.Do(ctx, w.key, func(inner context.Context) error {
		outer, _ := ctx.Deadline()
		if d, ok := inner.Deadline(); !ok || !d.Equal(outer) {
			t.Errorf("deadline %v, %v", d, ok)
		}
		return nil
	})
}

func doCtxEndsWithLock(t *testing.T, w *world) {
	failure := errors.New("failure")
	err := w.Do(t.Context(), w.key, func(ctx context.Context) error {
		w.lose(w.key)
		harness.Ended(t, ctx, advisory.ErrLost)
		return failure
	})
	harness.IsErr(t, err, advisory.ErrLost, failure)
	w.isFree(t, w.key)
	err = w.Do(t.Context(), w.key, func(ctx context.Context) error {
		w.close()
		harness.Ended(t, ctx, advisory.ErrClosed)
		return failure
	})
	harness.IsErr(t, err, advisory.ErrClosed, failure)
}

func doTellsLoss(t *testing.T, w *world) {
	err := w.Do(t.Context(), w.key, func(ctx context.Context) error {
		w.lose(w.key)
		harness.Ended(t, ctx, advisory.ErrLost)
		return nil
	})
	harness.IsErr(t, err, advisory.ErrLost)
	w.isFree(t, w.key)
	ran, err := w.TryDo(t.Context(), w.key, func(ctx context.Context) error {
		lock, _ := advisory.FromContext(ctx)
		w.lost(t, lock)
		return nil
	})
	if !ran {
		t.Error("it did not run")
	}
	harness.IsErr(t, err, advisory.ErrLost)
	w.isFree(t, w.key)
}

func doCtxEndsWithFn(t *testing.T, w *world) {
	var kept context.Context
	var lock advisory.Lock
	w.Do(t.Context(), w.key, func(ctx context.Context) error {
		kept = ctx
		lock, _ = advisory.FromContext(ctx)
		return nil
	})
	harness.Ended(t, kept, context.Canceled)
	harness.Ended(t, lock.Context(), context.Canceled)
	harness.IsErr(t, lock.Unlock(), advisory.ErrNotHeld)
}

func doWaitEnds(t *testing.T, w *world) {
	leave := w.occupy(w.key)
	err := w.Do(t.Context(), w.key, func(context.Context) error { t.Error("it runs"); return nil }, advisory.MaxWait(time.Millisecond))
	inVain(t, w, err, advisory.Exclusive, time.Millisecond)
	leave()
	w.isFree(t, w.key)
}

func doPanics(t *testing.T, w *world) {
	for _, do := range []func(func(context.Context) error){
		func(fn func(context.Context) error) { w.Do(t.Context(), w.key, fn) },
		func(fn func(context.Context) error) { w.TryDo(t.Context(), w.key, fn) },
	} {
		func() {
			defer func() {
				if v := recover(); v != "panic" {
					t.Errorf("recovered %v", v)
				}
			}()
			do(func(context.Context) error { panic("panic") })
		}()
		if err := w.occupy(w.key)(); err != nil {
			t.Error(err)
		}
	}
}

func doGoexit(t *testing.T, w *world) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Do(t.Context(), w.key, func(context.Context) error { runtime.Goexit(); return nil })
	}()
	harness.Receive(t, done)
	if err := w.occupy(w.key)(); err != nil {
		t.Error(err)
	}
}

func doReleasedByFn(t *testing.T, w *world) {
	err := w.Do(t.Context(), w.key, func(ctx context.Context) error {
		lock, _ := advisory.FromContext(ctx)
		harness.Release(t, lock)
		harness.Ended(t, ctx, context.Canceled)
		w.isFree(t, w.key)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	w.isFree(t, w.key)
}

func nested(t *testing.T, w *world) {
	n, _ := w.key.Int64()
	other := advisory.Int64(n + 10_000)
	nothing := func(context.Context) error { t.Error("it runs"); return nil }
	within := func(ctx context.Context) error {
		for _, m := range harness.Modes {
			_, ok, err := w.TryLock(ctx, w.key, m)
			if ok {
				t.Error("got it twice")
			}
			harness.IsErr(t, err, advisory.ErrAlreadyHeld)
			_, err = w.Lock(ctx, w.key, m)
			harness.IsErr(t, err, advisory.ErrAlreadyHeld)
			harness.IsErr(t, w.Do(ctx, w.key, nothing, m), advisory.ErrAlreadyHeld)
			ran, err := w.TryDo(ctx, w.key, nothing, m)
			if ran {
				t.Error("it ran")
			}
			harness.IsErr(t, err, advisory.ErrAlreadyHeld)
		}
		return nil
	}
	for _, m := range harness.Modes {
		err := w.Do(t.Context(), w.key, func(ctx context.Context) error {
			within(ctx)
			return w.Do(ctx, other, within) // at any depth
		}, m)
		if err != nil {
			t.Error(err)
		}
	}
	// Not once the lock is gone.
	err := w.Do(t.Context(), w.key, func(ctx context.Context) error {
		lock, _ := advisory.FromContext(ctx)
		harness.Release(t, lock)
		return w.Do(context.WithoutCancel(ctx), w.key, func(context.Context) error { return nil })
	})
	if err != nil {
		t.Error(err)
	}
	w.isFree(t, w.key)
}

func fromContext(t *testing.T, w *world) {
	n, _ := w.key.Int64()
	other := advisory.Int64(n + 10_000)
	check := func(ctx context.Context, k advisory.Key, m advisory.Mode) {
		t.Helper()
		lock, ok := advisory.FromContext(ctx)
		if !ok || lock.Key() != k || lock.Mode() != m || lock.Context().Err() != nil || lock.Token() == 0 {
			t.Errorf("%v, %v", lock, ok)
		}
	}
	err := w.Do(t.Context(), w.key, func(ctx context.Context) error {
		check(ctx, w.key, advisory.Shared)
		_, err := w.TryDo(ctx, other, func(ctx context.Context) error { check(ctx, other, advisory.Exclusive); return nil })
		check(ctx, w.key, advisory.Shared)
		return err
	}, advisory.Shared)
	if err != nil {
		t.Error(err)
	}
}

func maxWaitIsNotForWork(t *testing.T, w *world) {
	harness.Eventually(t, "it has the lock in time", func() bool {
		ran := false
		err := w.Do(t.Context(), w.key, func(ctx context.Context) error {
			ran = true
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(150 * time.Millisecond):
				return nil
			}
		}, advisory.MaxWait(100*time.Millisecond))
		if err != nil && (ran || !errors.Is(err, advisory.ErrNotAcquired)) {
			t.Error(err)
		}
		return ran
	})
}
