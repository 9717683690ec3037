package xact

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

const (
	// mostDead is how many dead connections a Do discards. A connection may die while it is idle, and
	// neither the pool behind begin nor its size is known here. database/sql retries on the next
	// connection by itself, but only if the driver's error is driver.ErrBadConn: lib/pq returns a reset
	// as it is.
	mostDead = 20
	// The pause between two attempts doubles from firstPause to lastPause. New connections may fail as
	// dead ones do, behind a load balancer without a server.
	firstPause = time.Millisecond
	lastPause  = 50 * time.Millisecond
)

// beginLive begins a transaction. If the connection is dead, it begins again on another.
func beginLive[T Tx](ctx context.Context, begin func(context.Context, *sql.TxOptions) (T, error), o *sql.TxOptions) (tx T, cancel context.CancelFunc, err error) {
	var before error
	pause := firstPause
	for dead := 0; ; dead++ {
		tx, cancel, err = beginBounded(ctx, begin, o)
		if before != nil && errors.Is(err, sql.ErrConnDone) { // begin belongs to one connection, which is closed
			return tx, cancel, before
		}
		if err == nil || dead == mostDead || ctx.Err() != nil || !diedIdle(err) {
			return tx, cancel, err
		}
		before = err
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return tx, cancel, bound.Ended(ctx, err)
		}
		pause = min(2*pause, lastPause)
	}
}

// diedIdle reports whether err may come from a connection that died while it was idle. After
// driver.ErrBadConn database/sql has retried on a new connection already.
func diedIdle(err error) bool { return lockfn.Gone(err) && !errors.Is(err, driver.ErrBadConn) }
