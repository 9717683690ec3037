package locker_test

import (
	"context"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
)

func observeHold(t *testing.T, w *world) {
	for _, m := range harness.Modes {
		r := &harness.Recorder{}
		opts := []advisory.LockerOption{m, advisory.Label("account"), advisory.WithObserver(r)}
		leave := w.occupy(w.key)
		c := w.lockLater(t.Context(), opts...)
		w.waiting(1)
		time.Sleep(20 * time.Millisecond)
		if events := r.All(); len(events) != 0 {
			t.Errorf("%+v", events)
		}
		leave()
		lock := granted(t, c)
		if e := r.Are(t, advisory.Acquired)[0]; e.Waited < 20*time.Millisecond || e.Local || e.PID == 0 || e.Err != nil || e.Held != 0 {
			t.Errorf("%+v", e)
		}
		time.Sleep(20 * time.Millisecond)
		harness.Release(t, lock)
		if e := r.Are(t, advisory.Acquired, advisory.Released)[1]; e.Held < 20*time.Millisecond || e.Local || e.PID == 0 || e.Err != nil || e.Waited != 0 {
			t.Errorf("%+v", e)
		}
		lock.Unlock() // does nothing
		w.pause()
		for _, e := range r.Are(t, advisory.Acquired, advisory.Released) {
			harness.IsOf(t, e, w.key, m, "account")
		}
	}
	// Readers of one process share one hold.
	a := w.try(t, w.key, advisory.Shared)
	r := &harness.Recorder{}
	harness.Release(t, w.try(t, w.key, advisory.Shared, advisory.WithObserver(r)))
	for _, e := range r.Are(t, advisory.Acquired, advisory.Released) {
		if !e.Local || e.PID == 0 {
			t.Errorf("%+v", e)
		}
	}
	harness.Release(t, a)
}

func observeInVain(t *testing.T, w *world) {
	r := &harness.Recorder{}
	opts := []advisory.LockerOption{advisory.Shared, advisory.Label("account"), advisory.WithObserver(r)}
	leave := w.occupy(w.key)
	w.TryLock(t.Context(), w.key, opts...)
	w.TryDo(t.Context(), w.key, func(context.Context) error { return nil }, opts...)
	for _, e := range r.Are(t, advisory.NotAcquired, advisory.NotAcquired) {
		harness.IsOf(t, e, w.key, advisory.Shared, "account")
		if e.Err != nil {
			t.Errorf("a try: %+v", e)
		}
	}
	r.Events = nil
	w.Lock(t.Context(), w.key, append(opts, advisory.MaxWait(0))...)
	w.Lock(t.Context(), w.key, append(opts, advisory.MaxWait(20*time.Millisecond))...)
	w.Lock(harness.Cancelled(t), w.key, opts...)
	events := r.Are(t, advisory.NotAcquired, advisory.NotAcquired, advisory.NotAcquired)
	for i, e := range events {
		harness.IsOf(t, e, w.key, advisory.Shared, "account")
		harness.IsErr(t, e.Err, advisory.ErrNotAcquired)
		if i == 1 && e.Waited < 20*time.Millisecond {
			t.Errorf("%+v", e)
		}
	}
	harness.IsErr(t, events[2].Err, context.Canceled)
	leave()
	r.Events = nil
	w.close()
	w.Lock(t.Context(), w.key, opts...)
	harness.IsErr(t, r.Are(t, advisory.NotAcquired)[0].Err, advisory.ErrClosed)
}

func observeLoss(t *testing.T, w *world) {
	r := &harness.Recorder{}
	lock := w.try(t, w.key, advisory.Label("account"), advisory.WithObserver(r))
	time.Sleep(20 * time.Millisecond)
	w.lost(t, lock)
	events := r.Are(t, advisory.Acquired, advisory.Lost)
	for _, e := range events {
		harness.IsOf(t, e, w.key, advisory.Exclusive, "account")
	}
	if e := events[1]; e.Held < 20*time.Millisecond || e.PID != events[0].PID || e.PID == 0 {
		t.Errorf("%+v", e)
	}
	harness.IsErr(t, events[1].Err, advisory.ErrLost)
	lock.Unlock()
	w.pause()
	r.Are(t, advisory.Acquired, advisory.Lost) // each hold ends once
}

func observeDo(t *testing.T, w *world) {
	r := &harness.Recorder{}
	w.Do(t.Context(), w.key, func(context.Context) error { r.Are(t, advisory.Acquired); return nil }, advisory.WithObserver(r))
	r.Are(t, advisory.Acquired, advisory.Released)
	r = &harness.Recorder{}
	w.Do(t.Context(), w.key, func(ctx context.Context) error { w.lose(w.key); <-ctx.Done(); return nil }, advisory.WithObserver(r))
	r.Are(t, advisory.Acquired, advisory.Lost)
	// What makes no sense is no event.
	r = &harness.Recorder{}
	w.Do(t.Context(), w.key, nil, advisory.WithObserver(r))
	w.Do(t.Context(), advisory.Key{}, func(context.Context) error { return nil }, advisory.WithObserver(r))
	w.pause()
	r.Are(t)
}

func observeDowngrade(t *testing.T, w *world) {
	r := &harness.Recorder{}
	lock := w.try(t, w.key, advisory.WithObserver(r))
	if err := lock.Downgrade(t.Context()); err != nil {
		t.Error(err)
	}
	harness.Release(t, lock)
	events := r.Are(t, advisory.Acquired, advisory.Released)
	if events[0].Mode != advisory.Exclusive || events[1].Mode != advisory.Shared {
		t.Errorf("%+v", events)
	}
}
