package xact

import (
	"context"
	"database/sql"
	"errors"

	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// mostDead is how many dead connections a Do discards. A connection may die while it is idle, and
// neither the pool behind begin nor its size is known here. database/sql retries on the next
// connection by itself, but only if the driver's error is driver.ErrBadConn: lib/pq returns a reset
// as it is.
const mostDead = 20

// beginLive begins a transaction. If the connection is dead, it begins again on another.
func beginLive[T Tx](ctx context.Context, begin func(context.Context, *sql.TxOptions) (T, error), o *sql.TxOptions) (tx T, cancel context.CancelFunc, err error) {
	var before error
	for dead := 0; ; dead++ {
		tx, cancel, err = beginBounded(ctx, begin, o)
		if before != nil && errors.Is(err, sql.ErrConnDone) { // begin belongs to one connection, which is closed
			return tx, cancel, before
		}
		if err == nil || dead == mostDead || ctx.Err() != nil || !lockfn.Gone(err) {
			return tx, cancel, err
		}
		before = err
	}
}
