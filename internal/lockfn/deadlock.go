package lockfn

// Blocks returns a row if the session holds anything that others may wait for. If not, the session
// is in no circle and need not send [Deadlock], which takes much longer. Deadlock takes the longer
// the more sessions wait, and each of them sends it.
//
// A fast statement is also better for CREATE INDEX CONCURRENTLY. If that finds the snapshot of a
// transaction, it waits for the end of the transaction.
const Blocks = answer + "WHERE EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE " + heldHere + ")" +
	" OR EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE NOT l.granted AND l.locktype <> 'advisory'" +
	" AND pg_catalog.pg_backend_pid() = ANY (pg_catalog.pg_blocking_pids(l.pid)))"

// NoTimeout precedes [Blocks] and [Deadlock] if no transaction of the caller is open: they take
// longer than a try, and may be slow on a busy server.
var NoTimeout = "SELECT " + setLocal("statement_timeout", "0") + "; "

// Deadlock asks whether the wait of this session, which its comment names, is part of a circle of
// waits. [Circle] reads the answer.
//
// A waiter of this library is recognized by its comment, see [Waits]. It may be between two tries,
// and so in no queue of the server. It waits for the holders of the key that its comment names. A
// shared waiter also waits for the exclusive waiters in the queue, because the server does not let
// it pass them.
//
// For other sessions the server knows whom they wait for. A session that waits for the transaction
// of a slice, as CREATE INDEX CONCURRENTLY does, waits no longer than the slice, and does not
// count.
//
// The walk starts from this session. ring is every session that can be reached from it and that
// reaches it.
//
// The column of pg_stat_activity that the statement needs is visible to sessions of the same role,
// and to roles with pg_read_all_stats. Within a transaction pg_stat_activity does not change after
// it was first read, hence the first statement.
const Deadlock = "SELECT pg_catalog.pg_stat_clear_snapshot(); " + deadlock

const deadlock = `WITH RECURSIVE
ours AS MATERIALIZED (
	SELECT a.pid, a.query
	FROM pg_catalog.pg_stat_activity a
	WHERE a.datname = pg_catalog.current_database() AND a.query ~ '/[*]pgadvisory waits [xs] [0-9]+ [0-9]+ [12][*]/'
), locks AS MATERIALIZED (
	SELECT l.pid, l.classid, l.objid, l.objsubid, l.mode, l.granted
	FROM pg_catalog.pg_locks l WHERE ` + advisoryHere + ` AND l.pid IS NOT NULL
), walk(waiter, blocker, holds) AS (
	SELECT 0, pg_catalog.pg_backend_pid(), true
	UNION
	SELECT n.waiter, n.blocker, n.holds FROM walk w, LATERAL (
		SELECT o.pid AS waiter, l.pid AS blocker, l.granted AS holds
		FROM (
			SELECT o.pid, k[1] AS mode, k[2]::pg_catalog.oid AS classid, k[3]::pg_catalog.oid AS objid, k[4]::pg_catalog.int2 AS objsubid
			FROM ours o, pg_catalog.regexp_matches(o.query, '/[*]pgadvisory waits ([xs]) ([0-9]+) ([0-9]+) ([12])[*]/') k
			WHERE o.pid = w.blocker
		) o JOIN locks l USING (classid, objid, objsubid)
		WHERE l.pid <> o.pid AND CASE o.mode WHEN 'x' THEN l.granted ELSE l.mode = 'ExclusiveLock' END
		AND NOT EXISTS (
			SELECT FROM locks g WHERE g.pid = o.pid AND g.granted AND (o.mode = 's' OR g.mode = 'ExclusiveLock')
			AND g.classid = o.classid AND g.objid = o.objid AND g.objsubid = o.objsubid
		)
		UNION ALL
		SELECT w.blocker, b, true FROM pg_catalog.unnest(pg_catalog.pg_blocking_pids(w.blocker)) b
		WHERE NOT EXISTS (SELECT FROM ours o WHERE o.pid = w.blocker)
		AND NOT (
			EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE l.pid = w.blocker AND NOT l.granted AND l.locktype = 'virtualxid')
			AND EXISTS (SELECT FROM ours o JOIN locks l USING (pid) WHERE o.pid = b AND NOT l.granted)
		)
	) n
), edge AS MATERIALIZED (
	SELECT w.waiter, w.blocker, w.holds FROM walk w WHERE w.waiter <> 0
), back(pid) AS (
	SELECT pg_catalog.pg_backend_pid()
	UNION
	SELECT e.waiter FROM edge e JOIN back b ON e.blocker = b.pid
), ring AS (
	SELECT DISTINCT e.waiter, o.query, o.query IS NOT NULL AND EXISTS (SELECT FROM edge h WHERE h.blocker = e.waiter AND h.holds) AS may_give_way
	FROM edge e LEFT JOIN ours o ON o.pid = e.waiter
	WHERE e.blocker IN (SELECT b.pid FROM back b)
)
` + answer + `FROM pg_catalog.generate_series(1, (
	SELECT CASE WHEN pg_catalog.min(r.waiter) FILTER (WHERE r.may_give_way) = pg_catalog.pg_backend_pid() THEN 1 ELSE 2 END
		+ 2 * (pg_catalog.hashtext(pg_catalog.string_agg(r.waiter || ' ' || coalesce(pg_catalog.substring(r.query, '/[*]pgadvisory waits [^*]*[*]/'), ''), ',' ORDER BY r.waiter)) & 127)
	FROM ring r HAVING pg_catalog.count(*) > 0))`

// Circle reads the answer of [Deadlock]. mark is 0 if there is no circle. Two checks with the same
// mark saw the same sessions wait for the same keys.
//
// In each circle first is true for exactly one waiter of this library: the one with the lowest pid,
// of those that hold something that others wait for. A session that only stands before others in a
// queue does not count.
func Circle(rows int64) (mark int64, first bool) {
	if rows == 0 {
		return 0, false
	}
	return (rows + 1) / 2, rows%2 == 1
}
