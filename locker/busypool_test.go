package locker_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/locker"
)

// A refusing connector takes a while to find that nobody listens.
type refusing struct{}

func (refusing) Driver() driver.Driver { return nil }

func (refusing) Connect(context.Context) (driver.Conn, error) {
	time.Sleep(30 * time.Millisecond)
	return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
}

// The server is away, and work of the program has all connections of the pool dialed. That is an outage,
// in which a wait goes on, and no pool that is too small.
func TestWaitGoesOnWhileABusyPoolIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := sql.OpenDB(refusing{})
		defer time.Sleep(time.Second) // in which the pool's goroutine ends
		defer db.Close()
		db.SetMaxOpenConns(3)
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
		defer stop()
		var work sync.WaitGroup
		for range 6 {
			work.Go(func() {
				for ctx.Err() == nil {
					db.PingContext(ctx)
				}
			})
		}
		l := locker.New(db)
		start := time.Now()
		_, err := l.Lock(ctx, advisory.Int64(1))
		if !errors.Is(err, advisory.ErrNotAcquired) || time.Since(start) != 3*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		work.Wait()
		l.Close()
	})
}
