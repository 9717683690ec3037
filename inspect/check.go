package inspect

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/given"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/pooler"
)

const checkTime = 30 * time.Second

// Check reports whether the server behind db is fit for advisory locks: whether they exclude there,
// and what could remove, keep or refuse them unexpectedly. It needs two connections of the pool at
// once, for about a dozen round trips. Afterwards they go back to the pool without a lock or a
// changed setting. Statements that the driver prepares by itself stay, as after any query: pgx
// keeps them.
//
// The subjects of the findings are:
//
//   - "pooler": whether connections share a session of the server. They do behind PgBouncer in
//     transaction mode, where locks exclude nobody. Also whether there is a proxy at all, such as
//     PgBouncer in session mode, as far as lib/pq and pgx show it.
//   - "PostgreSQL", "version" and "recovery": what the server is, and that it is no hot standby. If its
//     version() names another database, also which of the eight functions exclude, as a try shows.
//   - "lock table": how much of it is in use, by the whole server.
//   - "vanished client": how long a holder that vanished without closing its connection keeps its
//     lock.
//   - "idle_session_timeout", "idle_in_transaction_session_timeout", "transaction_timeout" and
//     "statement_timeout": their values on connections of this pool.
//   - "track_activities": whether it is on, as the detection of deadlocks requires.
//   - "pool": whether it is large enough.
//   - "failover": what a promotion of a standby means for locks. Whether standbys confirm commits of
//     this role, whether all that may be promoted do, and whether holders stop before a standby is
//     promoted: see [PromotedAfter]. Its value names what the program should set for a host that
//     goes silent, and Check cannot see. Not on a hot standby. A primary that is cut off but alive
//     is not covered: the failover manager must stop it. Replication below PostgreSQL, as of
//     volumes, does not show.
//
// Behind a pooler in transaction mode, and if the server is not PostgreSQL, that is the only finding.
// Such a server is [Unsafe] unless all eight functions exclude. The finding says which packages may be
// used if only those at one level do.
//
// Check returns an error if it could not make the check, or if an option is out of range. The result
// of the check is [Report.Err]. Check returns within two seconds after ctx ends, and takes at most
// half a minute. A connection that does not answer is discarded.
func Check(ctx context.Context, db *sql.DB, opts ...CheckOption) (*Report, error) {
	s, err := readCheckOptions(opts)
	switch {
	case err != nil:
	case ctx == nil:
		err = given.ErrNilCtx
	case db == nil:
		err = errors.New("db is nil")
	}
	if err != nil {
		return nil, fmt.Errorf("pgadvisory: check the server: %w", err)
	}
	limit, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("pgadvisory: check the server: %w", bound.Cause(ctx))
	}
	late, stop := bound.Context(limit)
	defer stop()
	c := check{settings: s}
	_, err = bound.Call(late, func(ctx context.Context) (none struct{}, _ error) {
		return none, c.run(ctx, db)
	}, c.giveUp, func(struct{}, error) {})
	if err != nil {
		return nil, fmt.Errorf("pgadvisory: check the server: %w", lockfn.Meaning(bound.Ended(limit, err)))
	}
	return &c.report, nil
}

type check struct {
	settings checkSettings
	report   Report
	first    atomic.Pointer[pooler.Link] // for giveUp

	tcp   bool
	proxy bool // the connection leads through a proxy
}

func (c *check) giveUp() {
	if l := c.first.Load(); l != nil {
		l.GiveUp()
	}
}

func (c *check) run(ctx context.Context, db *sql.DB) error {
	first, err := pooler.Open(ctx, db)
	if err != nil {
		return err
	}
	defer first.Close()
	c.first.Store(first)
	// This comes first: behind a pooler, a statement that the driver prepares would stay on the
	// session.
	sighted, err := c.probe(ctx, db, first)
	if unsafe, ok := errors.AsType[*advisory.UnsafeServerError](err); ok && unsafe.Reason == advisory.Pooler {
		c.report.addUnsafe("pooler", advisory.Pooler, unsafe.Detail, poolerAdvice)
		return nil
	}
	if err := c.addFindings(ctx, db, first, sighted, err); !c.proxy || !lockfn.NotPrepared(err) {
		return err
	}
	// This is a busy pooler that no probe found.
	c.report = Report{}
	c.report.addUnsafe("pooler", advisory.Pooler, "a statement that the driver had prepared on the connection did not exist when it was used",
		poolerAdvice)
	return nil
}

const poolerAdvice = "There is a pooler in transaction or statement mode: use only package xact through it. For session-level locks connect to the server directly, or through a pooler in session mode"

// addFindings makes all findings. err is the error of the probe for a pooler.
func (c *check) addFindings(ctx context.Context, db *sql.DB, first *pooler.Link, sighted bool, err error) error {
	var version string
	if qerr := first.Conn.QueryRowContext(ctx, lockfn.Version).Scan(&version); qerr != nil {
		return qerr
	}
	if !lockfn.IsPostgreSQL(version) {
		return c.otherServer(ctx, db, first, version, err)
	}
	var (
		recovery    bool
		number      int
		used, table int64
		pid         int64
	)
	if qerr := first.Conn.QueryRowContext(ctx, lockfn.ForCheck).Scan(&recovery, &number, &used, &table, &c.tcp, &pid); qerr != nil {
		return qerr
	}
	c.pooler(first, pid, sighted, err)
	c.server(version, number, recovery)
	c.lockTable(used, table)
	settings, err := readSettings(ctx, first.Conn)
	if err != nil {
		return err
	}
	c.vanished(settings)
	c.timeouts(settings)
	c.activities(settings)
	c.pool(db)
	if !recovery {
		r, err := readReplication(ctx, first.Conn, settings)
		if err != nil {
			return err
		}
		r.idleClosed = db.Stats().MaxIdleTimeClosed
		c.report.Findings = append(c.report.Findings, failoverOf(r, c.settings))
	}
	return nil
}

// probe checks for a pooler. If the connection does not prove to be direct, it repeats the check
// until that has a result, for at most probesTime.
func (c *check) probe(ctx context.Context, db *sql.DB, first *pooler.Link) (sighted bool, err error) {
	direct := false
	if pid, ok := first.ToldPID(); ok {
		rows, err := first.Exec(ctx, lockfn.HasPID(pid))
		if err != nil {
			return false, err
		}
		direct, c.proxy = rows == lockfn.SamePIDOnPrimary, rows == lockfn.OtherPID
	}
	start := time.Now()
	for pause := probePause; ; pause *= 2 {
		sighted, err = probeOnce(ctx, db, first)
		if err == nil || direct || first.Doubt() || errors.Is(err, advisory.ErrUnsafeServer) {
			return sighted, err
		}
		if time.Since(start) > probesTime {
			return sighted, err
		}
		select {
		case <-ctx.Done():
			return sighted, err
		case <-time.After(pause):
		}
	}
}

// probesTime is how long a probe without a result is repeated.
const probesTime = checkTime / 3

// probePause is the pause before the second probe. Each further pause is twice as long.
const probePause = 50 * time.Millisecond

func probeOnce(ctx context.Context, db *sql.DB, first *pooler.Link) (sighted bool, err error) {
	second, err := pooler.Second(ctx, db)
	if err != nil {
		return false, err
	}
	defer second.Close()
	return pooler.ProbeLinks(ctx, first, second)
}

func (c *check) pooler(first *pooler.Link, pid int64, sighted bool, err error) {
	driverPID, known := first.ToldPID()
	c.proxy = known && driverPID != pid
	unsafe, fake := errors.AsType[*advisory.UnsafeServerError](err)
	const how = "two connections are two sessions, and exclude each other"
	switch {
	case fake:
		c.report.addUnsafe("pooler", unsafe.Reason, unsafe.Detail, "Check that all connections of the pool lead to one server and one database")
	case err != nil:
		c.report.add("pooler", Warning, "not found out: "+err.Error(), "The check needs two connections of the pool at once")
	case c.proxy:
		c.report.add("pooler", Warning, fmt.Sprintf("%s, but there is a proxy, such as a pooler in session mode: the session has pid %d, and the driver got pid %d when it connected", how, pid, driverPID),
			"Locks exclude each other. The lock of a client that vanishes stays until the proxy detects that: set the keepalive of the proxy (PgBouncer: tcp_keepidle, tcp_keepintvl, tcp_keepcnt, tcp_user_timeout)")
	case !sighted:
		c.report.add("pooler", Warning, "two connections exclude each other",
			"The server does not show the activity of sessions (track_activities may be off), so the check may have missed a busy pooler in transaction mode")
	case known:
		c.report.add("pooler", OK, how+"; no proxy", "")
	default:
		c.report.add("pooler", OK, how, "The driver does not show whether there is a proxy, such as a pooler in session mode")
	}
}

func (c *check) server(version string, number int, recovery bool) {
	words, _, _ := strings.Cut(version, ",")
	c.report.add("PostgreSQL", OK, words, "")
	if number < lockfn.OldestServer {
		c.report.add("version", Warning, fmt.Sprint(number), fmt.Sprintf("This library supports PostgreSQL %d and newer: upgrade the server", lockfn.OldestServer/10000))
	} else {
		c.report.add("version", OK, fmt.Sprint(number), "")
	}
	if recovery {
		c.report.addUnsafe("recovery", advisory.Standby, "pg_is_in_recovery() is true", "Locks on a hot standby do not exclude those on the primary: connect to the primary")
	} else {
		c.report.add("recovery", OK, "a primary", "")
	}
}

func (c *check) lockTable(used, table int64) {
	value := fmt.Sprintf("%d of %d in use, room for %d", used, table, max(table-used, 0))
	if used*2 >= table {
		c.report.add("lock table", Warning, value, "When it is full, locks of all kinds fail, for all sessions: hold fewer, or raise max_locks_per_transaction")
		return
	}
	c.report.add("lock table", OK, value, "")
}

func (c *check) pool(db *sql.DB) {
	st := db.Stats()
	switch {
	case st.MaxOpenConnections == 0:
		c.report.add("pool", OK, "no limit on connections", "")
	case st.MaxOpenConnections == 1:
		c.report.add("pool", Warning, "MaxOpenConns is 1", "Work under a lock has no connection other than the one that holds it, and a Locker refuses to work: raise it to 2 or more")
	default:
		c.report.add("pool", OK, fmt.Sprintf("MaxOpenConns is %d", st.MaxOpenConnections), "")
	}
}
