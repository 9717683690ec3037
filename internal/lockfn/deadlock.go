package lockfn

// Blocks asks whether the session at hand has anything that others may be waiting for: a
// row if so. If not, it is in no circle, and need not send [Deadlock], which takes much
// longer: the more so the more sessions wait, each of which looks.
//
// What is quick is also good for CREATE INDEX CONCURRENTLY. If it comes upon a snapshot
// of a transaction, it waits for that transaction's end.
const Blocks = answer + "WHERE EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE " + heldHere + ")" +
	" OR EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE NOT l.granted AND l.locktype <> 'advisory'" +
	" AND pg_catalog.pg_backend_pid() = ANY (pg_catalog.pg_blocking_pids(l.pid)))"

// NoTimeout goes in front of [Blocks] and [Deadlock] where no transaction of the caller's
// is open: they are more than a try, and may take a while on a busy server.
var NoTimeout = "SELECT " + setLocal("statement_timeout", "0") + "; "

// Deadlock asks whether the wait of the session at hand, which its comment names, is
// part of a circle of waits; [Circle] reads the answer.
//
// A waiter of ours is known by its comment, see [Waits], for it may be between
// two tries and so in no queue of the server; it waits for those who hold what its
// comment names. A reader also waits for the writers that are queued up for it, for
// the server lets nobody pass them. Of others the server knows whom they wait for;
// but who waits for the transaction of a slice, as CREATE INDEX CONCURRENTLY does,
// waits for no longer than the slice. The walk starts from the session at hand; ring is
// every session that is reached from it and from which it is reached.
//
// The column of pg_stat_activity that it needs is open to sessions of one role, and
// to all who have pg_read_all_stats. pg_stat_activity stays as it was first seen
// in a transaction, hence the first statement.
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

// Circle reads the answer of [Deadlock]. The mark is 0 where there is no circle; two
// looks with one mark saw the same sessions wait for the same keys. In each
// circle exactly one waiter of ours is first: of those who hold something that is
// waited for, and are not merely in a queue's way, the one with the lowest pid.
func Circle(rows int64) (mark int64, first bool) {
	if rows == 0 {
		return 0, false
	}
	return (rows + 1) / 2, rows%2 == 1
}
