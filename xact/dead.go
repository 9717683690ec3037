package xact

import (
	"context"
	"database/sql"
	"errors"

	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// mostDead is how many connections that died while they were idle a Do discards. Which pool
// begin takes them from is not known, nor how many it has. database/sql goes on to the next by
// itself, but not if the driver's error is not driver.ErrBadConn: lib/pq passes on a reset.
const mostDead = 20

// live is [begun] that begins again on another connection if the first was dead.
func live[T Tx](ctx context.Context, begin func(context.Context, *sql.TxOptions) (T, error), o *sql.TxOptions) (tx T, cancel context.CancelFunc, err error) {
	var before error
	for dead := 0; ; dead++ {
		tx, cancel, err = begun(ctx, begin, o)
		if before != nil && errors.Is(err, sql.ErrConnDone) { // begin is of one connection
			return tx, cancel, before
		}
		if err == nil || dead == mostDead || ctx.Err() != nil || !lockfn.Gone(err) {
			return tx, cancel, err
		}
		before = err
	}
}
