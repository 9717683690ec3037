package sqlconn

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/dbconn"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/option"
	"github.com/pgadvisory/pgadvisory/internal/pooler"
	"github.com/pgadvisory/pgadvisory/internal/settings"
	"github.com/pgadvisory/pgadvisory/internal/sqlprivate"
	"github.com/pgadvisory/pgadvisory/internal/statement"
)

// SessionPooler asserts that a proxy, if there is one, gives the connection one server session
// until it is closed (PgBouncer: pool_mode = session). Without it [Lock] and [TryLock] refuse a
// connection through a proxy, and [Do] and [TryDo] check its pool first. If the assertion is false,
// the lock excludes nobody. Nor is a server checked that is not PostgreSQL: see [TryLock].
func SessionPooler() advisory.ConnOption { return sessionPooler{} }

type sessionPooler struct{}

func (sessionPooler) ApplyConn(c *option.Call) { c.SessionPooler = true }

// A proximity says whether a connection leads to PostgreSQL directly.
type proximity byte

const (
	direct  proximity = iota
	unknown           // the driver does not show it
	proxied
	otherServer // not PostgreSQL
)

// proximity compares the pid that the driver got when it connected with the session's pid, and asks
// whether the server is PostgreSQL. It takes one round trip at the first call on a physical connection, and none later.
func (c *call) proximity() (proximity, error) {
	switch {
	case c.physical.Direct():
		return direct, nil
	case pooler.Known(sqlprivate.Pool(c.conn), pooler.Indirect):
		return direct, nil
	case !c.physical.Told:
		return unknown, nil
	}
	rows, err := c.Exec(lockfn.HasPID(c.physical.PID))
	switch {
	case err != nil:
		return unknown, markGone(pooler.Refusal(err))
	case rows == lockfn.OtherServer:
		return otherServer, nil
	case rows == lockfn.OtherPID:
		return proxied, nil
	case rows == lockfn.SamePIDOnPrimary:
		c.physical.SetDirect()
	}
	return direct, nil
}

// refuseUnchecked returns an error if the connection leads through a proxy, which may share its session
// with other clients, or to a server that is not PostgreSQL, whose functions may lock nothing. If the
// driver does not show a pid, the connection counts as direct, and the server as PostgreSQL.
func (c *call) refuseUnchecked(ctx context.Context, s settings.Call) error {
	if s.SessionPooler {
		return nil
	}
	p, err := c.proximity()
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return bound.Cause(ctx)
	case p == proxied:
		return &advisory.UnsafeServerError{Reason: advisory.Pooler, Detail: "the connection leads through a proxy, which may share its session with other clients: " +
			"connect to the server directly, use package xact, or pass sqlconn.SessionPooler() if the proxy is in session mode"}
	case p == otherServer:
		return &advisory.UnsafeServerError{Reason: advisory.NotPostgreSQL, Detail: "version() names another server, whose functions may lock nothing: " +
			"use sqlconn.Do or TryDo, or a Locker, which try them, or call one of those on this pool first"}
	}
	return nil
}

const (
	// checkTime limits the check of a pool behind a proxy.
	checkTime = 10 * time.Second
	// firstProbe limits the first probe of a check. Each further probe may take twice as long.
	firstProbe = 3 * time.Second
	// probePause is the pause between two probes.
	probePause = 50 * time.Millisecond
)

// needsCheck reports whether the pool of conn must be checked before a lock is taken.
func needsCheck(ctx context.Context, conn Conn) (bool, error) {
	p, err := runCall(ctx, ctx, conn, func(c *call) (proximity, error) { return c.proximity() })
	return p != direct, err
}

// checkPool returns nil if locks exclude between two connections that open returns, which are of pool
// db, or of one that is not known. It repeats the probe until that has a result, for at most checkTime
// and until ctx ends.
func checkPool[C Conn](ctx context.Context, db *sql.DB, open func(context.Context) (C, error)) error {
	limit, stop := context.WithTimeout(ctx, checkTime)
	defer stop()
	slot := pooler.Slot(db)
	select {
	case slot <- struct{}{}:
		defer func() { <-slot }()
	case <-limit.Done():
		return uncheckedError(ctx, bound.Cause(limit))
	}
	for d := firstProbe; ; d *= 2 {
		err := probePool(limit, open, d)
		if err == nil || errors.Is(err, advisory.ErrUnsafeServer) {
			return err
		}
		select {
		case <-limit.Done():
			return uncheckedError(ctx, err)
		case <-time.After(probePause):
		}
	}
}

func uncheckedError(ctx context.Context, err error) error {
	return bound.Ended(ctx, fmt.Errorf("whether locks exclude here could not be checked "+
		"(raise MaxOpenConns, or see SessionPooler): %w", err))
}

// probePool opens two connections and probes once whether locks exclude between them, for at most
// d. It closes both connections; after a failed probe it discards them, because a lock may be on
// them.
func probePool[C Conn](ctx context.Context, open func(context.Context) (C, error), d time.Duration) error {
	ctx, stop := context.WithTimeout(ctx, d)
	defer stop()
	var execs [2]pooler.Exec
	var pool [2]Conn
	var probed error
	for i := range pool {
		conn, err := openConn(ctx, open)
		if err != nil {
			return fmt.Errorf("open a connection for the check: %w", err)
		}
		pool[i], execs[i] = conn, probeOn(conn)
		defer func() {
			if pooler.Leaves(probed) {
				dbconn.Discard(conn) // it may hold a lock of the probe
			}
			closeConn(conn, errors.Is(probed, bound.ErrNoAnswer))
		}()
	}
	db := sqlprivate.Pool(pool[0])
	if pooler.Known(db, pooler.Indirect) { // another check has succeeded
		return nil
	}
	if _, probed = pooler.Probe(ctx, execs[0], execs[1]); probed == nil && db == sqlprivate.Pool(pool[1]) {
		pooler.Remember(db, pooler.Indirect)
	}
	return probed
}

// probeOn returns a function that sends statements of a probe on conn, which no one else uses.
func probeOn(conn Conn) pooler.Exec {
	return func(ctx context.Context, text string) (int64, error) {
		return runCall(ctx, ctx, conn, func(c *call) (int64, error) {
			return statement.Session{Ctx: c.Session.Ctx, On: conn}.Exec(text)
		})
	}
}
