package locker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/locker"
)

func badArguments(t *testing.T, w *world) {
	nothing := func(context.Context) error { t.Error("it runs"); return nil }
	var nilObserver *harness.Recorder
	for _, v := range []struct {
		key  advisory.Key
		opts []advisory.LockerOption
		is   error
		says string
	}{
		{key: advisory.Key{}, is: advisory.ErrInvalidKey},
		{key: advisory.Name("account", ""), is: advisory.ErrInvalidKey},
		{key: w.key, opts: []advisory.LockerOption{advisory.MaxWait(-time.Second)}, says: "MaxWait(-1s)"},
		{key: w.key, opts: []advisory.LockerOption{locker.HoldAtLeast(-time.Second)}, says: "HoldAtLeast(-1s)"},
		{key: w.key, opts: []advisory.LockerOption{advisory.Mode(7)}, says: "Mode(7)"},
		{key: w.key, opts: []advisory.LockerOption{advisory.Shared, nil}, says: "option 2 of 2 is nil"},
		{key: w.key, opts: []advisory.LockerOption{advisory.WithObserver(nilObserver)}, says: "WithObserver"},
	} {
		calls := map[string]func() error{
			"TryLock": func() error { _, _, err := w.TryLock(t.Context(), v.key, v.opts...); return err },
			"Lock":    func() error { _, err := w.Lock(t.Context(), v.key, v.opts...); return err },
			"TryDo":   func() error { _, err := w.TryDo(t.Context(), v.key, nothing, v.opts...); return err },
			"Do":      func() error { return w.Do(t.Context(), v.key, nothing, v.opts...) },
		}
		for name, call := range calls {
			err := call()
			if err == nil || v.is != nil && !errors.Is(err, v.is) || !strings.Contains(err.Error(), v.says) {
				t.Errorf("%s(%v, %v): %v", name, v.key, v.opts, err)
			}
		}
	}
	for name, err := range map[string]error{
		"Do":    w.Do(t.Context(), w.key, nil),
		"TryDo": harness.Second(w.TryDo(t.Context(), w.key, nil)),
	} {
		if err == nil || !strings.Contains(err.Error(), "fn is nil") {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.isFree(t, w.key)
}

func afterClose(t *testing.T, w *world) {
	leave := w.occupy(w.key)
	waiting := w.lockLater(t.Context())
	w.waiting(1)
	if err := w.close(); err != nil {
		t.Error(err)
	}
	harness.IsErr(t, harness.Receive(t, waiting).err, advisory.ErrClosed)
	leave()
	nothing := func(context.Context) error { t.Error("it runs"); return nil }
	_, ok, err := w.TryLock(t.Context(), w.key)
	if ok {
		t.Error("got it")
	}
	harness.IsErr(t, err, advisory.ErrClosed)
	_, err = w.Lock(t.Context(), w.key)
	harness.IsErr(t, err, advisory.ErrClosed)
	harness.IsErr(t, w.Do(t.Context(), w.key, nothing), advisory.ErrClosed)
	harness.IsErr(t, harness.Second(w.TryDo(t.Context(), w.key, nothing)), advisory.ErrClosed)
	if err := w.close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}
