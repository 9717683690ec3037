package sqlconn

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/dbconn"
	"github.com/pgadvisory/pgadvisory/internal/drivers"
	"github.com/pgadvisory/pgadvisory/internal/given"
	"github.com/pgadvisory/pgadvisory/internal/held"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/pooler"
	"github.com/pgadvisory/pgadvisory/internal/settings"
	"github.com/pgadvisory/pgadvisory/internal/statement"
)

// A Conn is a connection that the caller has pinned and later closes: *sql.Conn, *sqlx.Conn and
// other types with these methods. A *sql.DB is not a Conn, because each of its statements may run
// on another connection.
//
// Do not use conn elsewhere while a call is in progress, and do not close it: a transaction that begins
// during a wait gets the wait's lock_timeout, and keeps the lock until the transaction ends.
type Conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	Raw(func(driverConn any) error) error
	Close() error
}

// A call is one call of this package on a connection.
type call struct {
	statement.Session
	conn     Conn
	raw      dbconn.Driver
	owner    held.Owner
	physical pooler.Physical
}

// runCall runs f for a call on conn. It returns in bounded time after the end of limit, which is
// ctx or ends before it. f may still run when runCall has returned.
func runCall[T any](ctx, limit context.Context, conn Conn, f func(*call) (T, error)) (none T, err error) {
	if err := mustHave(ctx, conn); err != nil {
		return none, err
	}
	if ctx.Err() != nil {
		return none, bound.Cause(ctx)
	}
	late, stop := bound.Context(limit)
	defer stop()
	return runCallUntil(late, conn, f)
}

// runCallUntil runs f for a call on conn, and returns in bounded time after the end of late.
func runCallUntil[T any](late context.Context, conn Conn, f func(*call) (T, error)) (T, error) {
	c := &call{conn: conn}
	return bound.Call(late, func(late context.Context) (none T, _ error) {
		var below drivers.Kind
		err := conn.Raw(func(driverConn any) error {
			below = drivers.Of(driverConn)
			c.keepDriver(driverConn)
			if late.Err() != nil { // conn was busy with another statement until this call was over
				return dbconn.Destroy(driverConn)
			}
			return nil
		})
		if err != nil {
			return none, err
		}
		if below == drivers.PGX && c.raw.Interruptible() { // with lib/pq it gains nothing, and loses the request to cancel
			defer context.AfterFunc(late, c.giveUp)()
			late = bound.Quiet(late)
		}
		c.Session = statement.Given(late, conn, below)
		v, err := f(c)
		if errors.Is(err, statement.ErrOpenRows) {
			c.discard()
		}
		return v, err
	}, c.giveUp, func(T, error) { c.discard() })
}

// attempt runs f, which may take k. It fails if another call for k is in progress on the connection,
// because the server would grant k to both.
func (c *call) attempt(k advisory.Key, f func() error) error {
	if !c.owner.Begin(k) {
		return fmt.Errorf("%w: another call on this connection is taking it: let that call return first", advisory.ErrAlreadyHeld)
	}
	defer c.owner.End(k)
	return f()
}

// nothing is the result of a call that returns only an error.
type nothing = struct{}

// keepDriver keeps the driver's connection for later, when conn.Raw may block.
func (c *call) keepDriver(driverConn any) error {
	c.owner = held.OwnerOf(driverConn)
	c.physical = pooler.PhysicalOf(driverConn)
	return c.raw.Keep(driverConn)
}

// giveUp closes the network connection of a statement that does not return.
func (c *call) giveUp() { c.raw.GiveUp() }

// discard destroys the connection, and with it all locks that it holds.
func (c *call) discard() {
	if dbconn.Discard(c.conn) { // the caller may have closed it during this call, so that it is in its pool
		c.raw.Close()
	}
	c.owner.Clear()
}

// releaseAfterFailure makes sure, after a failed statement, that the connection does not hold a lock
// that the call did not report.
func (c *call) releaseAfterFailure(k advisory.Key, m advisory.Mode, err error) {
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

// releaseLate releases a lock that was granted after the end of ctx.
func (c *call) releaseLate(k advisory.Key, m advisory.Mode) {
	if rows, err := c.Exec(lockfn.Unlock(k, m)); err != nil || rows != 1 {
		c.discard()
	}
}

// alreadyHeld returns an error if this package took k on this connection and has not released it. It
// asks the server to confirm: the pool may have reset the connection, or the caller may have released
// the lock with SQL of its own.
func (c *call) alreadyHeld(k advisory.Key) error {
	m, ok := c.owner.Mode(k)
	if !ok {
		return nil
	}
	rows, err := c.Exec(lockfn.HoldsAny(k))
	if err != nil {
		return markGone(err)
	}
	if rows == 0 {
		c.owner.Remove(k)
		return nil
	}
	return fmt.Errorf("%w on this connection (%v): unlock it first; an earlier user of a pooled connection may have left it locked", advisory.ErrAlreadyHeld, m)
}

// read reads the options, and checks ctx and the key.
func read(ctx context.Context, k advisory.Key, opts []advisory.ConnOption) (settings.Call, error) {
	s, err := settings.Conn(opts)
	switch {
	case err != nil:
		return s, err
	case ctx == nil:
		return s, given.ErrNilCtx
	}
	return s, settings.CheckKeys(k)
}

// mustHave returns an error if ctx or conn is nil.
func mustHave(ctx context.Context, conn Conn) error {
	switch {
	case ctx == nil:
		return given.ErrNilCtx
	case given.IsNil(conn):
		return errors.New("conn is nil")
	}
	return nil
}
