package bound

import (
	"context"
	"time"
)

// A driver, and database/sql for rows, watch a context that can end on goroutines of their own, for
// each statement, which costs a quarter of the statement and more. All that pgx does at the end of
// the context is to set a deadline on the network connection, and lib/pq may not return at all. So
// a [Quiet] context and dbconn.Driver.GiveUp do as much without those goroutines. Only, lib/pq sends no
// request to cancel the statement: what waits on the server goes on there until it is over.

// Quiet returns a context with the values of ctx and its error, of whose end a driver hears
// nothing. It is for a connection that is dbconn.Driver.Interruptible.
func Quiet(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		return ctx
	}
	return quiet{ctx}
}

type quiet struct{ context.Context }

func (quiet) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (quiet) Done() <-chan struct{}                   { return nil }
