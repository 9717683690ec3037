package bound

import (
	"context"
	"database/sql/driver"
	"sync/atomic"
)

// A Rawer is a *sql.Conn, or the like.
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

// Close closes the network connection below a statement that does not return.
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

// Discard destroys a connection, and with it whatever it holds.
//
// Below database/sql there may be another pool, to which a closed connection only goes
// back: pgx's, which destroys one that is inside a transaction.
func Discard(conn Rawer) {
	conn.Raw(func(driverConn any) error {
		if e, ok := driverConn.(driver.ExecerContext); ok {
			ctx, cancel := context.WithTimeout(context.Background(), Abort)
			defer cancel()
			e.ExecContext(ctx, "BEGIN", nil)
		}
		return driver.ErrBadConn
	})
}
