package bound

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

type valueKey struct{}

// ended reports whether ctx has ended, once all that is due now has happened.
func ended(ctx context.Context) bool {
	synctest.Wait()
	return ctx.Err() != nil
}

func TestContextEndsAGraceAfterTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithTimeout(context.WithValue(t.Context(), valueKey{}, "v"), time.Minute)
		defer end()
		late, stop := Context(ctx)
		defer stop()
		if late.Value(valueKey{}) != "v" {
			t.Error("the values are not those of the caller's")
		}
		if _, ok := late.Deadline(); ok {
			t.Error("the driver would see the caller's deadline")
		}
		time.Sleep(time.Minute + Grace - time.Nanosecond)
		if ended(late) {
			t.Error("ended before the grace was over")
		}
		time.Sleep(time.Nanosecond)
		if !ended(late) {
			t.Error("goes on after the grace")
		}
	})
}

func TestContextOfOneThatHasEndedHasItsGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		end()
		late, stop := Context(ctx)
		defer stop()
		if ended(late) {
			t.Error("ended at once")
		}
		time.Sleep(Grace)
		if !ended(late) {
			t.Error("goes on after the grace")
		}
	})
}

func TestContextEndsWhenItIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		for _, before := range []bool{true, false} { // the caller's ends before
			late, stop := Context(ctx)
			if before {
				end()
				synctest.Wait()
			}
			start := time.Now()
			stop()
			if !ended(late) || time.Since(start) != 0 {
				t.Errorf("caller's ended: %v: the driver's goes on after the call", before)
			}
			ctx, end = context.WithCancel(t.Context())
		}
		end()
	})
}

func TestContextOfOneThatNeverEndsDoesNotEither(t *testing.T) {
	late, stop := Context(context.WithValue(context.Background(), valueKey{}, "v"))
	stop()
	if late.Done() != nil || late.Err() != nil || late.Value(valueKey{}) != "v" {
		t.Errorf("done %v, error %v, value %v", late.Done(), late.Err(), late.Value(valueKey{}))
	}
}

func TestQuietHidesTheEndAndNotTheError(t *testing.T) {
	ctx, end := context.WithTimeout(context.WithValue(t.Context(), valueKey{}, "v"), time.Hour)
	quiet := Quiet(ctx)
	if _, ok := quiet.Deadline(); ok || quiet.Done() != nil || quiet.Err() != nil {
		t.Errorf("deadline %v, done %v, error %v", ok, quiet.Done(), quiet.Err())
	}
	end()
	if quiet.Err() != context.Canceled || quiet.Done() != nil || quiet.Value(valueKey{}) != "v" {
		t.Errorf("after the end: error %v, done %v, value %v", quiet.Err(), quiet.Done(), quiet.Value(valueKey{}))
	}
}
