// Package work runs a caller's work under a held lock.
package work

import (
	"context"
	"errors"
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/under"
)

// ErrNilFn is returned for work that is nil, before a lock is taken.
var ErrNilFn = errors.New("fn is nil")

// Under runs fn with a ctx that ends with ctx or with the lock's Context, and then calls release, also
// after a panic. lost wraps the error of a lock that was lost, or closed, while fn ran.
//
// It returns fn's error. If the lock was lost, it returns [advisory.ErrLost] too, and if its Locker was
// closed, [advisory.ErrClosed]. It does not report a lock that fn released, nor a Locker that was closed
// after fn had returned.
func Under(ctx context.Context, lock advisory.Lock, fn func(context.Context) error, release func() error, lost func(error) error) (err error) {
	work, cancel := context.WithCancelCause(under.NewContext(ctx, lock))
	stop := context.AfterFunc(lock.Context(), func() { cancel(context.Cause(lock.Context())) })
	defer func() {
		stop()
		defer cancel(nil)
		cause := context.Cause(lock.Context()) // before the release, which ends the Context
		rerr := release()
		switch {
		case errors.Is(cause, context.Canceled): // fn released it
		case cause != nil:
			err = errors.Join(err, lost(cause))
		case errors.Is(rerr, advisory.ErrClosed): // after fn had returned
		case rerr != nil:
			err = errors.Join(err, fmt.Errorf("%w: %w", advisory.ErrLost, rerr))
		}
	}()
	return fn(work)
}
