package locker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
)

func lockWaits(t *testing.T, w *world) {
	lock := w.try(t, w.key)
	c := w.lockLater(t.Context())
	w.waiting(1)
	w.stillWaits(t, c)
	harness.Release(t, lock)
	harness.Release(t, granted(t, c))

	leave := w.occupy(w.key)
	c = w.lockLater(t.Context(), advisory.MaxWait(time.Hour))
	w.waiting(1)
	w.stillWaits(t, c)
	if err := leave(); err != nil {
		t.Error(err)
	}
	harness.Release(t, granted(t, c))
}

// inVain checks the error of a wait that ended.
func inVain(t *testing.T, w *world, err error, m advisory.Mode, atLeast time.Duration) *advisory.NotAcquiredError {
	t.Helper()
	harness.IsErr(t, err, advisory.ErrNotAcquired)
	var na *advisory.NotAcquiredError
	if !errors.As(err, &na) {
		t.Fatalf("%T: %v", err, err)
	}
	if na.Key != w.key || na.Mode != m || na.Waited < atLeast {
		t.Errorf("%v", na)
	}
	return na
}

func lockEndsWithCtx(t *testing.T, w *world) {
	leave := w.occupy(w.key)
	reason := errors.New("reason")
	ctx, cancel := context.WithCancelCause(t.Context())
	c := w.lockLater(ctx, advisory.MaxWait(time.Hour))
	w.waiting(1)
	cancel(reason)
	err := harness.Receive(t, c).err
	inVain(t, w, err, advisory.Exclusive, 0)
	harness.IsErr(t, err, context.Canceled, reason)

	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	_, err = w.Lock(ctx, w.key, advisory.Shared)
	inVain(t, w, err, advisory.Shared, 50*time.Millisecond)
	harness.IsErr(t, err, context.DeadlineExceeded)
	leave()
}

func lockEndsWithMaxWait(t *testing.T, w *world) {
	harness.Release(t, w.try(t, w.key)) // now there is a session: else a short wait may end for want of one
	leave := w.occupy(w.key)
	_, err := w.Lock(t.Context(), w.key, advisory.MaxWait(50*time.Millisecond))
	na := inVain(t, w, err, advisory.Exclusive, 50*time.Millisecond)
	if errors.Is(err, context.DeadlineExceeded) || na.Cause != nil {
		t.Errorf("%v: it was not ctx", err)
	}
	leave()
}

func lockOneTry(t *testing.T, w *world) {
	lock, err := w.Lock(t.Context(), w.key, advisory.MaxWait(0))
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Lock(t.Context(), w.key, advisory.MaxWait(0))
	inVain(t, w, err, advisory.Exclusive, 0)
	harness.Release(t, lock)
	leave := w.occupy(w.key)
	_, err = w.Lock(t.Context(), w.key, advisory.MaxWait(0))
	inVain(t, w, err, advisory.Exclusive, 0)
	leave()
}

func lockWithEndedCtx(t *testing.T, w *world) {
	for _, opts := range [][]advisory.LockerOption{nil, {advisory.MaxWait(0)}, {advisory.MaxWait(time.Hour)}} {
		_, err := w.Lock(harness.Cancelled(t), w.key, opts...)
		inVain(t, w, err, advisory.Exclusive, 0)
		harness.IsErr(t, err, context.Canceled)
		err = w.Do(harness.Cancelled(t), w.key, func(context.Context) error { t.Error("it runs"); return nil }, opts...)
		inVain(t, w, err, advisory.Exclusive, 0)
		harness.IsErr(t, err, context.Canceled)
	}
	w.isFree(t, w.key)
}

func endedWaitHoldsNothing(t *testing.T, w *world) {
	for _, holder := range []func() func() error{
		func() func() error { return w.try(t, w.key).Unlock },
		func() func() error { return w.occupy(w.key) },
	} {
		leave := holder()
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			c := w.lockLater(ctx)
			w.waiting(1)
			cancel()
			harness.IsErr(t, harness.Receive(t, c).err, advisory.ErrNotAcquired)
		}
		if err := leave(); err != nil {
			t.Error(err)
		}
		w.isFree(t, w.key)
	}
}

func waitOutlivesSession(t *testing.T, w *world) {
	leave := w.occupy(w.key)
	c := w.lockLater(t.Context())
	w.waiting(1)
	for range 3 {
		w.pause()
		w.lose(w.key)
		w.stillWaits(t, c)
	}
	w.waiting(1)
	if err := leave(); err != nil {
		t.Error(err)
	}
	harness.Release(t, granted(t, c))
	w.isFree(t, w.key)
}

func errorNamesHolders(t *testing.T, w *world) {
	lock := w.try(t, w.key, advisory.Label("reconcile"))
	_, err := w.Lock(t.Context(), w.key, advisory.MaxWait(time.Millisecond))
	na := inVain(t, w, err, advisory.Exclusive, time.Millisecond)
	if len(na.Holders) != 1 {
		t.Fatalf("%v", na.Holders)
	}
	h := na.Holders[0]
	if !h.Local || h.Label != "reconcile" || h.PID == 0 || h.Mode != advisory.Exclusive || h.Since.IsZero() || h.Since.After(time.Now()) {
		t.Errorf("%+v", h)
	}
	if !strings.Contains(err.Error(), "label reconcile") {
		t.Errorf("%v", err)
	}
	harness.Release(t, lock)

	leave := w.occupy(w.key, advisory.Shared, advisory.Label("elsewhere"))
	_, err = w.Lock(t.Context(), w.key, advisory.MaxWait(0))
	na = inVain(t, w, err, advisory.Exclusive, 0)
	if len(na.Holders) != 1 {
		t.Fatalf("%v", na.Holders)
	}
	h = na.Holders[0]
	if h.Local || h.Label != "" || h.PID == 0 || h.Mode != advisory.Shared {
		t.Errorf("%+v", h)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = w.Lock(ctx, w.key)
	if na = inVain(t, w, err, advisory.Exclusive, 0); len(na.Holders) != 1 {
		t.Errorf("%v", na.Holders)
	}
	leave()

	// A try says no more than false, unless it is asked.
	var hs []advisory.Holder
	w.isFree(t, w.key) // the wait that was given up has gone
	leave = w.occupy(w.key)
	if _, ok, err := w.TryLock(t.Context(), w.key, advisory.HoldersTo(&hs)); ok || err != nil || len(hs) != 1 || hs[0].Local || hs[0].PID == 0 {
		t.Errorf("%v, %v, %+v", ok, err, hs)
	}
	leave()
	nothing := func(context.Context) error { return nil }
	if ran, err := w.TryDo(t.Context(), w.key, nothing, advisory.HoldersTo(&hs)); !ran || err != nil || hs != nil {
		t.Errorf("%v, %v, %+v", ran, err, hs)
	}
	lock = w.try(t, w.key, advisory.Label("reconcile"))
	if ran, err := w.TryDo(t.Context(), w.key, nothing, advisory.HoldersTo(&hs)); ran || err != nil || len(hs) != 1 || !hs[0].Local || hs[0].Label != "reconcile" {
		t.Errorf("%v, %v, %+v", ran, err, hs)
	}
	harness.Release(t, lock)
}
