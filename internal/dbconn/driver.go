// Package dbconn takes connections from a pool that are alive, and destroys those that are in doubt.
package dbconn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/drivers"
)

// A Rawer is a *sql.Conn, or a type that embeds one.
type Rawer interface {
	Raw(func(driverConn any) error) error
}

// A Driver keeps a driver's connection for later, when Raw of the *sql.Conn may not return.
type Driver struct{ conn atomic.Value }

type driverConn struct{ driver.Conn }

// Keep is for Raw.
func (d *Driver) Keep(conn any) error {
	if c, ok := conn.(driver.Conn); ok {
		d.conn.Store(driverConn{c})
	}
	return nil
}

// GiveUp ends a statement that does not return after the end of its context: it closes the network
// connection below, or sets a deadline on pgx's, which then closes it. Closed beneath one of its
// statements pgx would panic, if that was just about to return.
func (d *Driver) GiveUp() {
	c, ok := d.conn.Load().(driverConn)
	if !ok {
		return
	}
	if drivers.Of(c.Conn) != drivers.PGX {
		c.Close()
	} else if d, ok := deadlineOf(c.Conn); ok {
		d.SetDeadline(past)
	}
}

// Close closes the network connection.
func (d *Driver) Close() {
	if c, ok := d.conn.Load().(driverConn); ok {
		c.Close()
	}
}

// Valid reports whether the driver takes its connection for a good one.
func (d *Driver) Valid() bool {
	c, ok := d.conn.Load().(driverConn)
	if !ok {
		return false
	}
	v, ok := c.Conn.(driver.Validator)
	return ok && v.IsValid()
}

// Destroy is for Raw, of a connection that is, or may be, about to be closed: database/sql then
// does not heed [driver.ErrBadConn].
func Destroy(driverConn any) error {
	begin(driverConn)
	if c, ok := driverConn.(driver.Conn); ok {
		c.Close()
	}
	return driver.ErrBadConn
}

// Discard destroys a connection, and with it whatever it holds.
//
// Below database/sql there may be another pool, to which a closed connection only goes
// back: pgx's, which destroys one that is inside a transaction.
//
// database/sql closes a connection no sooner than rows and a transaction on it are closed,
// and meanwhile takes no more statements. Discard does not wait for that. It does wait for a
// statement that is under way, and for the driver's answer to BEGIN: a driver that does not heed
// its context holds Discard up.
//
// closed: conn was closed before, and there is nothing to destroy, or no way to.
func Discard(conn Rawer) (closed bool) {
	var raw Driver
	asked, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- conn.Raw(func(driverConn any) error {
			defer close(asked)
			raw.Keep(driverConn)
			begin(driverConn)
			return driver.ErrBadConn
		})
	}()
	select {
	case err := <-ended:
		return errors.Is(err, sql.ErrConnDone)
	case <-asked:
	}
	timer := time.NewTimer(closing)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		raw.Close()
	}
	return false
}

// begin begins a transaction, for the sake of a pool below database/sql.
func begin(driverConn any) {
	if e, ok := driverConn.(driver.ExecerContext); ok {
		ctx, cancel := context.WithTimeout(context.Background(), bound.Abort)
		defer cancel()
		e.ExecContext(ctx, "BEGIN", nil)
	}
}

// closing is for how long database/sql may take to close a connection. It is not known
// otherwise whether it waits.
const closing = 100 * time.Millisecond
