package locker

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
	"github.com/pgadvisory/pgadvisory/internal/pooler"
)

// What keeps the failover time from being kept.
var (
	errNoUserTimeout = errors.New("the server's platform has no tcp_user_timeout: if its packets to this client are lost, a lock may be kept for longer than the failover time")
	errProxied       = errors.New("there is a proxy in between, such as a pooler in session mode: if this client vanishes, a lock is kept until the proxy finds out, which may take longer than the failover time")
)

var errPoolOfOne = errors.New("open a session for locks: the pool has MaxOpenConns 1, so that work under a lock would wait without end for a connection of its own: raise it to 2 at least, better to what the work uses and 4")

// connect opens the connection, in bounded time.
func (s *session) connect() error {
	if n := s.l.db.Stats().MaxOpenConnections; n == 1 {
		return errPoolOfOne
	}
	late, stop := context.WithCancel(s.ctx)
	defer stop()
	limit := time.AfterFunc(connectTime, stop)
	defer limit.Stop()
	setUp := func(ctx context.Context) (*fit, error) { return s.setUpAlive(ctx, limit) }
	o, err := bound.Call(late, setUp, s.giveUp, func(o *fit, err error) {
		if err == nil {
			o.close()
		}
	})
	if err != nil {
		e := &openingError{dbconn.FaultOf(err), err}
		if st := s.l.db.Stats(); errors.Is(err, bound.ErrNoAnswer) && st.MaxOpenConnections > 0 && st.InUse >= st.MaxOpenConnections {
			e.cause = fmt.Errorf("all %d connections of the pool are in use, raise MaxOpenConns: %w", st.MaxOpenConnections, err)
			if e.fault == dbconn.Passing { // the work may never give one back
				e.fault = dbconn.Unclear
			}
		}
		return e
	}
	s.conn, s.batch = o.conn, o.batch
	if err := s.prove(o); err != nil {
		return &openingError{dbconn.FaultOf(err), err}
	}
	s.l.mu.Lock()
	if !s.alive() { // lost with all others
		defer s.l.mu.Unlock()
		return s.err
	}
	s.beginReady(o.pid)
	s.l.sessionOpened()
	s.l.room.size = o.table
	s.l.pollOnly = o.deadlock <= s.l.times.Heartbeat
	s.recordAnswer(o.sent)
	s.watch = time.AfterFunc(s.l.times.Deadline, s.overdue)
	s.loseIfUnproven() // it may have lapsed just now
	s.l.mu.Unlock()
	e := advisory.Event{Kind: advisory.SessionOpened, PID: o.pid, Err: o.unchecked}
	if !o.bounded {
		e.Err = errors.Join(e.Err, errNoUserTimeout)
	}
	if o.proxied {
		e.Err = errors.Join(e.Err, errProxied)
	}
	s.l.observe(e)
	return nil
}

// fit is a connection that is fit for locks.
type fit struct {
	conn  *sql.Conn
	batch *sql.Stmt
	pid   int
	table int64
	sent  time.Time // when the last statement that was answered was sent
	// deadlock is deadlock_timeout, or 0 if there can be no slices.
	deadlock time.Duration
	// bounded: its platform lets go of a client that vanished in whatever way.
	bounded bool
	// proxied: its end of the link is not the client's, as far as the driver shows that.
	proxied bool
	// unchecked: why no pooler could be looked for.
	unchecked error
}

func (o *fit) close() {
	dbconn.Discard(o.conn)
	o.conn.Close()
}

// setUpAlive is setUp, again if the pool's idle connections turn out to be dead, or lead to an old
// primary.
func (s *session) setUpAlive(ctx context.Context, limit *time.Timer) (*fit, error) {
	for idle := s.l.db.Stats().Idle; ; idle-- {
		o, err := s.setUp(ctx, limit)
		if err == nil || idle <= 0 || ctx.Err() != nil || !stalePrimary(err) && (errors.Is(err, advisory.ErrUnsafeServer) || !lockfn.LinkGone(err)) {
			return o, err
		}
	}
}

// setUp opens a connection, makes it fit, and checks that locks are real there. limit ends
// ctx. It may hang: lib/pq minds ctx only in part.
func (s *session) setUp(ctx context.Context, limit *time.Timer) (_ *fit, err error) {
	conn, err := dbconn.Take(ctx, s.l.db, func(conn *sql.Conn) error {
		var d dbconn.Driver
		s.driver.Store(&d)
		return conn.Raw(d.Keep)
	})
	if err != nil {
		return nil, err
	}
	o := &fit{conn: conn}
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	// First, for behind a pooler the settings would be made on sessions of others.
	if o.unchecked, err = s.l.checkOpening(ctx, conn, limit); err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, lockfn.SetAll(sessionSettings(s.l.times, s.l.settings))); err != nil {
		return nil, err
	}
	if err := o.examine(ctx, s.l); err != nil {
		return nil, err
	}
	o.batch, err = conn.PrepareContext(ctx, lockfn.Batch(s.l.settings.Fencing, o.pid))
	return o, err
}

// checkOpening checks the server, on a connection that is being opened, unless a check has succeeded
// that says something about every connection. limit is the timer of the opening, which starts again
// after the check. unchecked is why the check could not be made, if the connection may be used without
// it.
func (l *Locker) checkOpening(ctx context.Context, conn *sql.Conn, limit *time.Timer) (unchecked, err error) {
	if l.settings.NoServerCheck || pooler.Known(l.db, pooler.Indirect) {
		return nil, nil
	}
	limit.Reset(checkTime + connectTime)
	err = l.checkFirst(ctx, conn)
	limit.Reset(connectTime)
	if _, ok := errors.AsType[uncheckedError](err); ok {
		return err, nil
	}
	return nil, err
}

// examine reads what the Locker needs to know about the server and the session. It fails with an
// [*advisory.UnsafeServerError] if locks there do not exclude.
func (o *fit) examine(ctx context.Context, l *Locker) error {
	var a about
	o.sent = time.Now()
	if err := a.ask(ctx, o.conn); err != nil {
		return err
	}
	o.pid, o.table = a.pid, a.table
	if a.recovery {
		return lockfn.ErrStandby
	}
	other := !lockfn.IsPostgreSQL(a.version)
	if other {
		if err := l.fitsOtherServer(ctx, o.conn, a.version); err != nil {
			return err
		}
	}
	if err := l.newestTimeline(a); err != nil {
		return err
	}
	if err := l.tokensFit(a); err != nil {
		return err
	}
	o.bounded = !a.tcp || a.userTimeout != 0
	if told, ok := pooler.On(ctx, o.conn).ToldPID(); ok {
		o.proxied = told != int64(o.pid)
	}
	if !other { // nobody has checked there what a slice uses
		o.deadlock = time.Duration(a.deadlock) * time.Millisecond
	}
	return nil
}

// connectTime bounds the wait for a connection.
const connectTime = 10 * time.Second
