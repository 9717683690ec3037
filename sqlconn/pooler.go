package sqlconn

import (
	"context"
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

// SessionPooler asserts that a proxy, if there is one, hands the connection one session of the
// server until it is closed (PgBouncer: pool_mode = session). Without it [Lock] and [TryLock]
// refuse a connection through a proxy, and [Do] and [TryDo] check its pool first. If the
// assertion is false, the lock excludes nobody.
func SessionPooler() advisory.ConnOption { return sessionPooler{} }

type sessionPooler struct{}

func (sessionPooler) ApplyConn(c *option.Call) { c.SessionPooler = true }

// A proximity is how a connection leads to the server.
type proximity byte

const (
	direct  proximity = iota
	unknown           // the driver does not show it
	proxied
)

// proximity compares the pid that the driver was given with the session's. It is one round
// trip at the first call on a physical connection, and none later.
func (c *call) proximity() (proximity, error) {
	switch {
	case c.physical.Direct():
		return direct, nil
	case pooler.Known(sqlprivate.Pool(c.conn)):
		return direct, nil
	case !c.physical.Told:
		return unknown, nil
	}
	rows, err := c.Exec(lockfn.HasPID(c.physical.PID))
	switch {
	case err != nil:
		return unknown, gone(err)
	case rows == lockfn.OtherPID:
		return proxied, nil
	case rows == lockfn.SamePIDOnPrimary:
		c.physical.SetDirect()
	}
	return direct, nil
}

// refuseProxy returns an error if the connection leads through a proxy, which may share its
// session with other clients. What the driver does not show counts as direct.
func (c *call) refuseProxy(ctx context.Context, s settings.Call) error {
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
			"connect past it, use package xact, or give sqlconn.SessionPooler() if it is in session mode"}
	}
	return nil
}

const (
	// checkTime bounds the check of a pool behind a proxy.
	checkTime = 10 * time.Second
	// firstProbe bounds the first probe of a check; each further one may take twice as long.
	firstProbe = 3 * time.Second
	// probePause is the pause between two probes.
	probePause = 50 * time.Millisecond
)

// checking is the turn of the one check that is under way: each needs two connections at a
// time, of which several checks at once could leave none to the others.
var checking = make(chan struct{}, 1)

// needsCheck reports whether the pool of conn is to be checked before a lock is taken.
func needsCheck(ctx context.Context, conn Conn) (bool, error) {
	p, err := on(ctx, ctx, conn, func(c *call) (proximity, error) { return c.proximity() })
	return p != direct, err
}

// checkPool returns nil if locks exclude between two connections that open returns. It probes
// until there is an answer, or ctx ends.
func checkPool[C Conn](ctx context.Context, open func(context.Context) (C, error)) error {
	limit, stop := context.WithTimeout(ctx, checkTime)
	defer stop()
	select {
	case checking <- struct{}{}:
		defer func() { <-checking }()
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
	return bound.Ended(ctx, fmt.Errorf("whether a pooler hands sessions to several clients could not be checked "+
		"(raise MaxOpenConns, or see SessionPooler): %w", err))
}

func probePool[C Conn](ctx context.Context, open func(context.Context) (C, error), d time.Duration) (err error) {
	ctx, stop := context.WithTimeout(ctx, d)
	defer stop()
	var execs [2]pooler.Exec
	var pool [2]Conn
	for i := range pool {
		conn, err := opened(ctx, open)
		if err != nil {
			return fmt.Errorf("open a connection for the check: %w", err)
		}
		pool[i], execs[i] = conn, probeOn(conn)
		defer func() {
			if err != nil && !errors.Is(err, advisory.ErrUnsafeServer) {
				dbconn.Discard(conn) // a lock may be on it
			}
			closed(conn, errors.Is(err, bound.ErrNoAnswer))
		}()
	}
	db := sqlprivate.Pool(pool[0])
	if pooler.Known(db) { // by another check meanwhile
		return nil
	}
	if _, err = pooler.Probe(ctx, execs[0], execs[1]); err == nil && db == sqlprivate.Pool(pool[1]) {
		pooler.Remember(db)
	}
	return err
}

// probeOn sends statements of a probe on a connection that nobody else has.
func probeOn(conn Conn) pooler.Exec {
	return func(ctx context.Context, text string) (int64, error) {
		return on(ctx, ctx, conn, func(c *call) (int64, error) {
			return statement.Session{Ctx: c.Session.Ctx, On: conn}.Exec(text)
		})
	}
}
