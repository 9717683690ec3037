package work_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/under"
	"github.com/pgadvisory/pgadvisory/internal/work"
)

type lock struct {
	advisory.Lock
	ctx context.Context
	end context.CancelCauseFunc
}

func (l *lock) Context() context.Context { return l.ctx }

func held(t *testing.T) *lock {
	ctx, end := context.WithCancelCause(t.Context())
	return &lock{ctx: ctx, end: end}
}

var errWrapped = errors.New("work under the lock")

func wrap(err error) error { return fmt.Errorf("%w: %w", errWrapped, err) }

func TestErrorOfWork(t *testing.T) {
	errWork, errRelease := errors.New("work"), errors.New("release")
	for _, v := range []struct {
		name     string
		cause    error // with which the lock ends while the work runs
		release  error
		is, isNo []error
	}{
		{"well", nil, nil, nil, []error{advisory.ErrLost, advisory.ErrClosed, errWrapped}},
		{"lost", advisory.ErrLost, advisory.ErrLost, []error{errWrapped, advisory.ErrLost}, nil},
		{"closed", advisory.ErrClosed, advisory.ErrClosed, []error{errWrapped, advisory.ErrClosed}, []error{advisory.ErrLost}},
		{"released by the work", context.Canceled, advisory.ErrNotHeld, nil, []error{errWrapped, advisory.ErrNotHeld, context.Canceled}},
		{"closed after the work", nil, advisory.ErrClosed, nil, []error{advisory.ErrClosed, advisory.ErrLost}},
		{"found not to be held", nil, errRelease, []error{advisory.ErrLost, errRelease}, []error{errWrapped}},
	} {
		for _, own := range []error{nil, errWork} {
			l := held(t)
			released := 0
			err := work.Under(t.Context(), l, func(ctx context.Context) error {
				if under.Lock(ctx) != l {
					t.Errorf("%s: the work's ctx does not have the lock", v.name)
				}
				if v.cause != nil {
					l.end(v.cause)
					if <-ctx.Done(); context.Cause(ctx) != v.cause {
						t.Errorf("%s: the work's ctx ended with %v", v.name, context.Cause(ctx))
					}
				}
				return own
			}, func() error { released++; return v.release }, wrap)
			if released != 1 {
				t.Errorf("%s: released %d times", v.name, released)
			}
			if own == nil && v.is == nil && err != nil || own != nil && !errors.Is(err, own) {
				t.Errorf("%s: %v", v.name, err)
			}
			for _, is := range v.is {
				if !errors.Is(err, is) {
					t.Errorf("%s: %v is not %v", v.name, err, is)
				}
			}
			for _, no := range v.isNo {
				if errors.Is(err, no) {
					t.Errorf("%s: %v is %v", v.name, err, no)
				}
			}
		}
	}
}

func TestWorkThatPanicsReleases(t *testing.T) {
	released := false
	defer func() {
		if v := recover(); v != "oops" || !released {
			t.Errorf("%v, released: %v", v, released)
		}
	}()
	work.Under(t.Context(), held(t), func(context.Context) error { panic("oops") }, func() error { released = true; return nil }, wrap)
}

func TestEndOfTheCallersCtxEndsTheWork(t *testing.T) {
	why := errors.New("enough")
	ctx, end := context.WithCancelCause(t.Context())
	err := work.Under(ctx, held(t), func(ctx context.Context) error {
		end(why)
		<-ctx.Done()
		return context.Cause(ctx)
	}, func() error { return nil }, wrap)
	if err != why {
		t.Error(err)
	}
}
