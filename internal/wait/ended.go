package wait

import (
	"context"
	"errors"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
)

// Ended converts an error that the end of a wait's time caused, before or during a statement, into a
// *advisory.NotAcquiredError. It returns other errors unchanged.
func Ended(caller, limit context.Context, k advisory.Key, m advisory.Mode, start time.Time, err error) error {
	var na *advisory.NotAcquiredError
	if err == nil || errors.As(err, &na) || limit.Err() == nil {
		return err
	}
	noAnswer := errors.Is(err, bound.ErrNoAnswer)
	if !noAnswer && !errors.Is(err, limit.Err()) {
		return err
	}
	na = &advisory.NotAcquiredError{Key: k, Mode: m, Waited: time.Since(start)}
	if caller.Err() != nil {
		na.Cause = bound.Cause(caller)
	}
	if noAnswer {
		na.Cause = errors.Join(na.Cause, bound.ErrNoAnswer)
	}
	return na
}

// HoldsNothing reports whether err ended a wait in an orderly way: the session holds nothing of it,
// and is unchanged.
func HoldsNothing(err error) bool {
	return errors.Is(err, advisory.ErrNotAcquired) || errors.Is(err, ErrCanceled) || errors.Is(err, advisory.ErrDeadlock) || errors.Is(err, advisory.ErrUnsafeServer)
}
