package inprocess_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory/inprocess"
)

var key = advisory.Int64(4820)

// Goroutines of one process exclude each other, by every call.
func TestGoroutinesExcludeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inprocess.New()
		var inside, ran atomic.Int32
		work := func(context.Context) error {
			if inside.Add(1) != 1 {
				t.Error("two at once")
			}
			time.Sleep(time.Millisecond)
			inside.Add(-1)
			ran.Add(1)
			return nil
		}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if err := l.Do(t.Context(), key, work); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				if _, err := l.TryDo(t.Context(), key, work); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				lock, err := l.Lock(t.Context(), key)
				if err != nil {
					t.Error(err)
				}
				work(lock.Context())
				if err := lock.Unlock(); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				if lock, ok, err := l.TryLock(t.Context(), key); ok {
					work(lock.Context())
					lock.Unlock()
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := ran.Load(); n < 40 || l.Holds(key) {
			t.Errorf("%d ran; held: %v", n, l.Holds(key))
		}
	})
}

func TestHolderIsThisProcess(t *testing.T) {
	l := inprocess.New()
	lock, ok, err := l.TryLock(t.Context(), key, advisory.Label("account"))
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	if lock.Token() != 0 {
		t.Errorf("token %d: it does not grow over a restart", lock.Token())
	}
	_, err = l.Lock(t.Context(), key, advisory.MaxWait(0))
	busy, ok := errors.AsType[*advisory.NotAcquiredError](err)
	if !ok || len(busy.Holders) != 1 {
		t.Fatal(err)
	}
	if h := busy.Holders[0]; h.PID != os.Getpid() || !h.Local || h.Label != "account" || h.EndSQL() != "" {
		t.Errorf("%+v, %s", h, h.EndSQL())
	}
	if err := lock.Unlock(); err != nil {
		t.Error(err)
	}
}

func TestWorkRunsUnderItsLock(t *testing.T) {
	l := inprocess.New()
	is := func(ctx context.Context, k advisory.Key) {
		t.Helper()
		if lock, ok := advisory.FromContext(ctx); !ok || lock.Key() != k {
			t.Errorf("%v, %v", lock, ok)
		}
	}
	inner := advisory.Int64(1)
	err := l.Do(t.Context(), key, func(ctx context.Context) error {
		is(ctx, key)
		ran, err := l.TryDo(ctx, inner, func(ctx context.Context) error { is(ctx, inner); return nil })
		is(ctx, key)
		if same := l.Do(ctx, key, func(context.Context) error { return nil }); !errors.Is(same, advisory.ErrAlreadyHeld) {
			t.Error(same)
		}
		if !ran {
			t.Error("the inner work has not run")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

type recorder []advisory.Event

func (r *recorder) Observe(_ context.Context, e advisory.Event) { *r = append(*r, e) }

// The options of New are for calls that have none of their own.
func TestOptionsOfNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ofNew, ofCall recorder
		l := inprocess.New(advisory.WithObserver(&ofNew), advisory.WithWaitingAfter(time.Second))
		lock, _, _ := l.TryLock(t.Context(), key, advisory.WithObserver(&ofCall))
		_, err := l.Lock(t.Context(), key, advisory.MaxWait(1500*time.Millisecond))
		if !errors.Is(err, advisory.ErrNotAcquired) {
			t.Error(err)
		}
		lock.Unlock()
		var kinds []advisory.EventKind
		for _, e := range ofNew {
			kinds = append(kinds, e.Kind)
		}
		if len(kinds) != 2 || kinds[0] != advisory.Waiting || kinds[1] != advisory.NotAcquired || len(ofNew[0].Holders) != 1 || ofNew[0].Waited != time.Second {
			t.Errorf("of New: %+v", ofNew)
		}
		if len(ofCall) != 2 || ofCall[0].PID != os.Getpid() {
			t.Errorf("of the call: %+v", ofCall)
		}
	})
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	for _, o := range []advisory.ObserverOption{nil, advisory.WithWaitingAfter(-1), advisory.WithObserver((*recorder)(nil))} {
		l := inprocess.New(o)
		if _, ok, err := l.TryLock(t.Context(), key); ok || err == nil {
			t.Errorf("%v: %v, %v", o, ok, err)
		}
		if err := l.Do(t.Context(), key, func(context.Context) error { t.Error("it ran"); return nil }); err == nil {
			t.Errorf("%v: no error", o)
		}
	}
}

func TestClose(t *testing.T) {
	l := inprocess.New()
	lock, _, _ := l.TryLock(t.Context(), key)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if cause := context.Cause(lock.Context()); !errors.Is(cause, advisory.ErrClosed) {
		t.Error(cause)
	}
	if _, err := l.Lock(t.Context(), key); !errors.Is(err, advisory.ErrClosed) {
		t.Error(err)
	}
}

func TestNilContext(t *testing.T) {
	l := inprocess.New()
	var none context.Context
	if _, err := l.Lock(none, key); err == nil {
		t.Error("Lock: no error")
	}
	if _, ok, err := l.TryLock(none, key); ok || err == nil {
		t.Errorf("TryLock: %v, %v", ok, err)
	}
	if err := l.Do(none, key, func(context.Context) error { t.Error("it ran"); return nil }); err == nil {
		t.Error("Do: no error")
	}
	lock, err := l.Lock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Downgrade(none); err == nil || lock.Mode() != advisory.Exclusive {
		t.Errorf("Downgrade: %v, mode %v", err, lock.Mode())
	}
	if err := lock.Unlock(); err != nil {
		t.Error(err)
	}
}
