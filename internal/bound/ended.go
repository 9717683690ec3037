package bound

import (
	"context"
	"errors"
	"fmt"
)

// Cause is the error of a ctx that has ended, with the cause that it was given.
func Cause(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Ended puts the end of ctx, if it has ended, in front of an error that came of it.
func Ended(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(err, ctx.Err()) && errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return fmt.Errorf("%w (%w)", Cause(ctx), err)
}
