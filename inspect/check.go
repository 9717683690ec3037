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
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/pooler"
)

const checkTime = 30 * time.Second

// Check looks whether the server behind db is fit for advisory locks: whether they are
// real there, and what would take them away, keep them or refuse them when nobody
// expects it. It takes two connections of the pool for a dozen round trips, and leaves
// neither a lock nor a setting on them. What a driver prepares of its own accord stays there,
// as with any query: pgx keeps the statements that it has sent.
//
// The subjects of its findings are
//
//   - "pooler": whether connections share a session of the server, as behind PgBouncer in
//     transaction mode, where locks are fake; and whether there is a proxy at all, such as
//     PgBouncer in session mode, as far as lib/pq and pgx show it;
//   - "PostgreSQL", "version" and "recovery": what server it is, and that it is no hot standby;
//   - "lock table": how much of it is in use, by all of the server;
//   - "vanished client": how long a holder that vanished without a word would keep its lock;
//   - "idle_session_timeout", "idle_in_transaction_session_timeout", "transaction_timeout" and
//     "statement_timeout", as they are in force on connections of this pool;
//   - "track_activities", which the search for deadlocks needs;
//   - "pool": that it is large enough.
//
// Behind a pooler in transaction mode, and where the server is not PostgreSQL, that is
// the only finding. The error tells that the check could not be made; see [Report.Err] for
// its result. Check returns within two seconds after ctx ends, and takes no more than half
// a minute.
func Check(ctx context.Context, db *sql.DB) (*Report, error) {
	if db == nil {
		return nil, errors.New("pgadvisory: check the server: db is nil")
	}
	limit, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("pgadvisory: check the server: %w", bound.Cause(ctx))
	}
	late, stop := bound.Context(limit)
	defer stop()
	var c check
	_, err := bound.Call(late, func(ctx context.Context) (none struct{}, _ error) {
		return none, c.run(ctx, db)
	}, c.giveUp, func(struct{}, error) {})
	if err != nil {
		return nil, fmt.Errorf("pgadvisory: check the server: %w", lockfn.Meaning(bound.Ended(limit, err)))
	}
	return &c.report, nil
}

type check struct {
	report Report
	first  atomic.Pointer[pooler.Link] // for giving it up

	tcp   bool
	proxy bool // one was seen
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
	// Before all else, since behind a pooler a query that a driver prepares is left there.
	sighted, err := c.probe(ctx, db, first)
	if unsafe, ok := errors.AsType[*advisory.UnsafeServerError](err); ok && unsafe.Reason == advisory.Pooler {
		c.report.addUnsafe("pooler", advisory.Pooler, unsafe.Detail, poolerAdvice)
		return nil
	}
	if err := c.questions(ctx, db, first, sighted, err); !c.proxy || !lockfn.NotPrepared(err) {
		return err
	}
	// A busy pooler that no probe found.
	c.report = Report{}
	c.report.addUnsafe("pooler", advisory.Pooler, "what the driver had prepared on the connection was not there when it was used",
		poolerAdvice)
	return nil
}

const poolerAdvice = "There is a pooler in transaction or statement mode: use xact alone through it, and connect past it, or in session mode, for session-level locks"

// questions asks the server all but whether there is a pooler; err is why that is not known.
func (c *check) questions(ctx context.Context, db *sql.DB, first *pooler.Link, sighted bool, err error) error {
	var version string
	if qerr := first.Conn.QueryRowContext(ctx, lockfn.Version).Scan(&version); qerr != nil {
		return qerr
	}
	if !lockfn.IsPostgreSQL(version) {
		c.report.addUnsafe("PostgreSQL", advisory.NotPostgreSQL, version, "Databases that speak its protocol may accept the functions and lock nothing: connect to PostgreSQL")
		return nil
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
	return nil
}

// probe looks for a pooler. On a connection that is not seen to be direct it does so again
// until there is an answer or probesTime is over.
func (c *check) probe(ctx context.Context, db *sql.DB, first *pooler.Link) (sighted bool, err error) {
	direct := false
	if told, ok := first.ToldPID(); ok {
		rows, err := first.Exec(ctx, lockfn.HasPID(told))
		if err != nil {
			return false, err
		}
		direct, c.proxy = rows == 1, rows == 0
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

// probesTime is for how long a probe that had no answer is begun again.
const probesTime = checkTime / 3

// probePause is the pause before the second probe; each further one is twice as long.
const probePause = 50 * time.Millisecond

func probeOnce(ctx context.Context, db *sql.DB, first *pooler.Link) (sighted bool, err error) {
	second, err := pooler.Second(ctx, db)
	if err != nil {
		return false, err
	}
	defer second.Close()
	return pooler.Probe(ctx, first.Exec, second.Exec)
}

func (c *check) pooler(first *pooler.Link, pid int64, sighted bool, err error) {
	toldPID, told := first.ToldPID()
	c.proxy = told && toldPID != pid
	unsafe, fake := errors.AsType[*advisory.UnsafeServerError](err)
	const how = "two connections are two sessions, and exclude each other"
	switch {
	case fake:
		c.report.addUnsafe("pooler", unsafe.Reason, unsafe.Detail, "Do all connections of the pool go to one server, and to one database?")
	case err != nil:
		c.report.add("pooler", Warning, "not found out: "+err.Error(), "The check needs two connections of the pool at a time")
	case c.proxy:
		c.report.add("pooler", Warning, fmt.Sprintf("%s, but there is a proxy, such as a pooler in session mode: the session has pid %d, the connection was told %d", how, pid, toldPID),
			"Locks are real. The lock of a client that vanishes is kept until the proxy finds out: set its own keepalive (PgBouncer: tcp_keepidle, tcp_keepintvl, tcp_keepcnt, tcp_user_timeout)")
	case !sighted:
		c.report.add("pooler", Warning, "two connections exclude each other",
			"What sessions do is not shown (track_activities is off, perhaps), so a busy pooler in transaction mode may not have been seen")
	case told:
		c.report.add("pooler", OK, how+"; no proxy", "")
	default:
		c.report.add("pooler", OK, how, "The driver does not show whether there is a proxy, such as a pooler in session mode")
	}
}

func (c *check) server(version string, number int, recovery bool) {
	words, _, _ := strings.Cut(version, ",")
	c.report.add("PostgreSQL", OK, words, "")
	if number < lockfn.OldestServer {
		c.report.add("version", Warning, fmt.Sprint(number), fmt.Sprintf("This library is for PostgreSQL %d and newer", lockfn.OldestServer/10000))
	} else {
		c.report.add("version", OK, fmt.Sprint(number), "")
	}
	if recovery {
		c.report.addUnsafe("recovery", advisory.Standby, "pg_is_in_recovery() is true", "A hot standby grants locks that the primary knows nothing of: connect to the primary")
	} else {
		c.report.add("recovery", OK, "a primary", "")
	}
}

func (c *check) lockTable(used, table int64) {
	value := fmt.Sprintf("%d of %d in use, room for %d", used, table, max(table-used, 0))
	if used*2 >= table {
		c.report.add("lock table", Warning, value, "When it is full, locks of all kinds fail, for everybody: hold fewer, or raise max_locks_per_transaction")
		return
	}
	c.report.add("lock table", OK, value, "")
}

func (c *check) pool(db *sql.DB) {
	st := db.Stats()
	switch {
	case st.MaxOpenConnections == 0:
		c.report.add("pool", OK, "no limit of connections", "")
	case st.MaxOpenConnections == 1:
		c.report.add("pool", Warning, "MaxOpenConns is 1", "Work under a lock has no connection beside the one that holds it, and a Locker refuses: raise it to 2 or more")
	default:
		c.report.add("pool", OK, fmt.Sprintf("MaxOpenConns is %d", st.MaxOpenConnections), "")
	}
}
