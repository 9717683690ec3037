package sqlconn

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/given"
	"github.com/pgadvisory/pgadvisory/internal/held"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/pooler"
	"github.com/pgadvisory/pgadvisory/internal/settings"
)

// A Conn is a connection that the caller has pinned, and closes: *sql.Conn,
// *sqlx.Conn and the like. A *sql.DB does not fit, for each of its statements may
// run on another connection. It is not to be closed while a call of this package is
// under way on it.
type Conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	Raw(func(driverConn any) error) error
	Close() error
}

// A call is one call of this package on a connection.
type call struct {
	bound.Session
	conn     Conn
	raw      bound.Driver
	owner    held.Owner
	physical pooler.Physical
}

// on runs f for a call on conn, in bounded time after the end of limit, which is ctx
// or ends before it. f may still run when on has returned.
func on[T any](ctx, limit context.Context, conn Conn, f func(*call) (T, error)) (none T, err error) {
	if given.IsNil(conn) {
		return none, errors.New("conn is nil")
	}
	if ctx.Err() != nil {
		return none, bound.Cause(ctx)
	}
	late, stop := bound.Context(limit)
	defer stop()
	return in(late, conn, f)
}

// in runs f for a call on conn, in bounded time after the end of late.
func in[T any](late context.Context, conn Conn, f func(*call) (T, error)) (T, error) {
	c := &call{conn: conn}
	return bound.Call(late, func(late context.Context) (none T, _ error) {
		var below given.Driver
		err := conn.Raw(func(driverConn any) error {
			below = given.DriverOf(driverConn)
			c.look(driverConn)
			if late.Err() != nil { // it came after a statement that outlasted this call
				return bound.Destroy(driverConn)
			}
			return nil
		})
		if err != nil {
			return none, err
		}
		if below == given.PGX && c.raw.Interruptible() { // with lib/pq it gains nothing, and loses the request to cancel
			defer context.AfterFunc(late, c.giveUp)()
			late = bound.Quiet(late)
		}
		c.Session = bound.Given(late, conn, below)
		v, err := f(c)
		if errors.Is(err, bound.ErrOpenRows) {
			c.discard()
		}
		return v, err
	}, c.giveUp, func(T, error) { c.discard() })
}

// attempt runs f, which may take k. The server would grant it to two calls at a time.
func (c *call) attempt(k advisory.Key, f func() error) error {
	if !c.owner.Begin(k) {
		return fmt.Errorf("%w, or about to be, by another call that is under way on this connection", advisory.ErrAlreadyHeld)
	}
	defer c.owner.End(k)
	return f()
}

// nothing is what a call returns that returns no more than an error.
type nothing = struct{}

// look keeps the driver's connection for later, when conn.Raw may not return.
func (c *call) look(driverConn any) error {
	c.owner = held.OwnerOf(driverConn)
	c.physical = pooler.PhysicalOf(driverConn)
	return c.raw.Keep(driverConn)
}

// giveUp closes the network connection below a statement that does not return.
func (c *call) giveUp() { c.raw.GiveUp() }

// discard destroys the connection, and with it whatever it holds.
func (c *call) discard() {
	if bound.Discard(c.conn) { // perhaps it was closed beneath this call, and is in its pool
		c.raw.Close()
	}
	c.owner.Clear()
}

// settle sees to it that after a failed statement nothing is held that was not
// reported as taken.
func (c *call) settle(k advisory.Key, m advisory.Mode, err error) {
	switch {
	case errors.Is(err, sql.ErrConnDone), lockfn.Refused(err):
		return
	case lockfn.SQLState(err) != "":
		if _, err := c.Exec(lockfn.UnlockIfHeld(k, m)); err == nil {
			return
		}
	}
	c.discard()
}

// undo releases a lock that came too late.
func (c *call) undo(k advisory.Key, m advisory.Mode) {
	if rows, err := c.Exec(lockfn.Unlock(k, m)); err != nil || rows != 1 {
		c.discard()
	}
}

// alreadyHeld returns an error if this package took k on this connection and has
// not released it. What it remembers it checks on the server: a pool may have
// reset the connection, or the caller released the lock by hand.
func (c *call) alreadyHeld(k advisory.Key) error {
	m, ok := c.owner.Mode(k)
	if !ok {
		return nil
	}
	rows, err := c.Exec(lockfn.HoldsAny(k))
	if err != nil {
		return gone(err)
	}
	if rows == 0 {
		c.owner.Remove(k)
		return nil
	}
	return fmt.Errorf("%w on this connection (%v): unlock it first, or was it left by an earlier user of a pooled connection?", advisory.ErrAlreadyHeld, m)
}

// read reads the options and checks the key.
func read(k advisory.Key, opts []advisory.ConnOption) (settings.Call, error) {
	s, err := settings.Conn(opts)
	switch {
	case err != nil:
	case k == (advisory.Key{}):
		err = advisory.ErrInvalidKey
	}
	return s, err
}
