// Package bound keeps calls into a driver within time.
//
// A driver may not return: lib/pq, on a link that swallows packets, does not
// within half a minute of its context's end. And a driver whose context ends in
// the middle of a statement gives up the connection, or the transaction, or
// leaves behind a lock that it does not know of. So the caller's context never
// reaches the driver. The driver gets one that ends later, by a grace in which the
// answer still counts; and a call that does not return even then is walked
// away from.
package bound

import (
	"context"
	"time"
)

const (
	// Grace is for how long after the end of the caller's context an answer
	// is waited for. Then the driver's context ends.
	Grace = time.Second
	// Abort is for how long after that the driver may take to return.
	Abort = time.Second
)

// Context returns a context with the values of ctx that ends [Grace] after ctx. It
// never ends, and then costs nothing, if ctx never does.
func Context(ctx context.Context) (context.Context, context.CancelFunc) {
	late := context.WithoutCancel(ctx)
	if ctx.Done() == nil {
		return late, func() {}
	}
	late, cancel := context.WithCancel(late)
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(Grace):
			cancel()
		case <-late.Done():
		}
	})
	return late, func() { stop(); cancel() }
}
