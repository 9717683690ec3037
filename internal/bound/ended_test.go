package bound

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

var errWhy = errors.New("why")

func TestCauseIsTheErrorAndTheReason(t *testing.T) {
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(errWhy)
	if err := Cause(canceled); !errors.Is(err, context.Canceled) || !errors.Is(err, errWhy) {
		t.Errorf("ended with a reason: %v", err)
	}
	expired, stop := context.WithDeadlineCause(t.Context(), time.Now(), errWhy)
	defer stop()
	if err := Cause(expired); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errWhy) {
		t.Errorf("expired with a reason: %v", err)
	}
	plain, end := context.WithCancel(t.Context())
	end()
	if err := Cause(plain); err != context.Canceled {
		t.Errorf("ended without a reason: %v", err)
	}
	// A reason that says what the error says is not preceded by it.
	wrapped, wrap := context.WithCancelCause(t.Context())
	reason := fmt.Errorf("the worker was stopped: %w", context.Canceled)
	wrap(reason)
	if err := Cause(wrapped); err != reason {
		t.Errorf("ended with a reason that names the error: %v", err)
	}
}

func TestEndedPutsTheEndInFront(t *testing.T) {
	errDriver := errors.New("the driver's")
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := Ended(ctx, errDriver); err != errDriver {
		t.Errorf("before the end: %v", err)
	}
	cancel(errWhy)
	if err := Ended(ctx, nil); err != nil {
		t.Errorf("no error became %v", err)
	}
	err := Ended(ctx, errDriver)
	for _, is := range []error{context.Canceled, errWhy, errDriver} {
		if !errors.Is(err, is) {
			t.Errorf("%v is not %v", err, is)
		}
	}
	if again := Ended(ctx, err); again != err {
		t.Errorf("the end was put in front twice: %v", again)
	}
	if err := Ended(ctx, fmt.Errorf("%w: %w", context.Canceled, errDriver)); !errors.Is(err, errWhy) {
		t.Errorf("an error without the reason stays without it: %v", err)
	}
}
