package lockfn

import (
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// Everybody lists the locks on keys in this database, held and waited for, of all
// sessions and prepared transactions, in no order; [ScanEverybody] reads a row. It asks
// for no statement's text.
//
// It reads pg_locks once, so that the rows are consistent. It asks whom a session waits for only if
// the session waits, and once for each session, since that stops the lock table for a moment; one
// row of the session has the answer. The column waitstart exists since PostgreSQL 14. To name it
// would be an error on older servers, hence to_jsonb.
//
// A prepared transaction is found by the lock on its own transaction id. Its virtual transaction is
// that of the session that prepared it, or none after a restart.
//
// The planner has no statistics of these views. So the query has no join whose cost is the number
// of locks times the number of waiters.
const Everybody = `WITH k AS MATERIALIZED (
	SELECT l.* FROM pg_catalog.pg_locks l
), here AS MATERIALIZED (
	SELECT l.classid, l.objid, l.objsubid, l.mode, l.granted, l.pid, l.virtualtransaction,
		CASE WHEN NOT l.granted THEN (pg_catalog.to_jsonb(l) ->> 'waitstart')::pg_catalog.timestamptz END AS waitstart,
		pg_catalog.row_number() OVER (PARTITION BY l.pid ORDER BY l.granted) AS n
	FROM k l WHERE ` + advisoryHere + ofKeys + `
), prepared AS MATERIALIZED (
	SELECT l.virtualtransaction, p.gid, p.owner, p.prepared
	FROM pg_catalog.pg_prepared_xacts p
	JOIN k l ON l.locktype = 'transactionid' AND l.pid IS NULL AND l.transactionid = p.transaction
)
SELECT h.classid::pg_catalog.int8, h.objid::pg_catalog.int8, h.objsubid::pg_catalog.int4, h.mode, h.granted,
	coalesce(h.pid, 0), coalesce(a.usename::pg_catalog.text, p.owner::pg_catalog.text, ''), coalesce(a.application_name, ''),
	coalesce(pg_catalog.host(a.client_addr) || ':' || a.client_port, CASE WHEN a.client_port = -1 THEN 'local' END, ''),
	CASE WHEN h.pid IS NULL THEN 'prepared' WHEN a.pid IS NULL THEN 'ended' ELSE coalesce(a.state, '') END,
	coalesce(a.wait_event_type || '/' || a.wait_event, ''), coalesce(p.gid, ''),
	a.pid IS NOT NULL AND a.backend_start IS NULL,
	` + beginMicros + `CASE WHEN h.pid IS NULL THEN p.prepared WHEN h.granted THEN coalesce(a.xact_start, a.state_change) ELSE coalesce(h.waitstart, a.query_start) END` + endMicros + `,
	` + beginMicros + `pg_catalog.clock_timestamp()` + endMicros + `,
	` + beginMicros + `a.state_change` + endMicros + `, ` + beginMicros + `a.xact_start` + endMicros + `, ` + beginMicros + `CASE WHEN a.state <> 'idle' THEN a.query_start END` + endMicros + `,
	CASE WHEN h.n = 1 AND h.pid IN (SELECT l.pid FROM k l WHERE NOT l.granted)
		THEN pg_catalog.array_to_string(pg_catalog.pg_blocking_pids(h.pid), ',') ELSE '' END
FROM here h
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = h.pid
LEFT JOIN prepared p ON h.pid IS NULL AND p.virtualtransaction = h.virtualtransaction
WHERE ` + freshActivity

// EverybodyBare is [Everybody] without the names of roles, for a server whose lock table is full.
// Reading a relation or a view takes a lock on it. Each session has places of its own for a few
// locks on relations of its database. A lock on a shared relation, such as pg_database and
// pg_authid, takes a place in the table. So this statement reads functions instead.
var EverybodyBare = strings.NewReplacer(bare...).Replace(Everybody)

// Foreign counts the advisory locks of this database, held and waited for, that are of no key.
const Foreign = "SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks l WHERE " + advisoryHere + " AND NOT (true" + ofKeys + ")"

// ForeignBare is [Foreign] for a server whose lock table is full.
var ForeignBare = strings.NewReplacer(bare...).Replace(Foreign)

// bare are the replacements, of each text by the next.
var bare = []string{
	// The view reads nothing else, but the lock on the view takes one of the session's places.
	"pg_catalog.pg_locks l", "pg_catalog.pg_lock_status() l",
	// This reads pg_database.
	advisoryHere, "l.locktype = 'advisory' AND l.database = (SELECT s.datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) s)",
	// The view joins pg_database and pg_authid.
	"pg_catalog.pg_stat_activity a", "pg_catalog.pg_stat_get_activity(NULL) a",
	// So does this one.
	"pg_catalog.pg_prepared_xacts p", "pg_catalog.pg_prepared_xact() p",
	// The names come from pg_authid: the functions do not return them.
	"coalesce(a.usename::pg_catalog.text, p.owner::pg_catalog.text, '')", "''",
	"p.gid, p.owner, p.prepared", "p.gid, p.prepared",
}

// A Row is a row of [Everybody].
type Row struct {
	Key     advisory.Key
	Mode    advisory.Mode
	Granted bool

	PID         int // 0: a prepared transaction
	User        string
	Application string
	Client      string
	State       string // "prepared", "ended", "" if hidden, else as in pg_stat_activity
	WaitEvent   string
	GID         string
	Hidden      bool // the role may not see the session's client, state and times

	Since                        time.Time // zero: not visible
	Now                          time.Time // of the server
	StateSince, XactStart, Query time.Time // zero: none, or not visible
	Blockers                     []int     // of the session, in one of its rows; 0: a prepared transaction
}

// ScanEverybody reads a row of [Everybody].
func ScanEverybody(rows *sql.Rows) (r Row, err error) {
	var (
		classid, objid                 int64
		objsubid                       int
		mode, blockers                 string
		since, now, state, xact, query sql.NullInt64
	)
	err = rows.Scan(&classid, &objid, &objsubid, &mode, &r.Granted, &r.PID, &r.User, &r.Application, &r.Client,
		&r.State, &r.WaitEvent, &r.GID, &r.Hidden, &since, &now, &state, &xact, &query, &blockers)
	if err != nil {
		return r, err
	}
	r.Key, r.Mode = tag{uint32(classid), uint32(objid), objsubid}.key(), modeOf(mode)
	r.Since, r.Now = timeOf(since), timeOf(now)
	r.StateSince, r.XactStart, r.Query = timeOf(state), timeOf(xact), timeOf(query)
	if blockers != "" {
		for s := range strings.SplitSeq(blockers, ",") {
			pid, err := strconv.Atoi(s)
			if err != nil {
				return r, fmt.Errorf("pg_blocking_pids: %w", err)
			}
			r.Blockers = append(r.Blockers, pid)
		}
		// The server may list a prepared transaction, or a group of parallel workers, more than once.
		seen := make(map[int]bool, len(r.Blockers))
		r.Blockers = slices.DeleteFunc(r.Blockers, func(pid int) bool {
			again := seen[pid]
			seen[pid] = true
			return again
		})
	}
	return r, nil
}

// Here asks for the database and the role of the session, server_version, whether the server is in
// recovery, and the server's time in microseconds since 1970.
const Here = "SELECT pg_catalog.current_database()::pg_catalog.text, CURRENT_USER::pg_catalog.text, pg_catalog.current_setting('server_version'), pg_catalog.pg_is_in_recovery(), " + beginMicros + "pg_catalog.clock_timestamp()" + endMicros
