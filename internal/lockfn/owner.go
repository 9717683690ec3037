package lockfn

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Setting is a setting that a Locker changes for its session.
type Setting struct{ Name, Value string }

// SetAll changes those of the settings that exist on the server.
func SetAll(settings []Setting) string {
	var values []string
	for _, s := range settings {
		values = append(values, fmt.Sprintf("('%s', %s)", s.Name, literal(s.Value)))
	}
	return "SELECT pg_catalog.set_config(s.name, v.value, false) FROM (VALUES " + strings.Join(values, ", ") +
		") v(name, value) JOIN pg_catalog.pg_settings s ON s.name = v.name"
}

// About asks what a Locker needs to know about a session's server:
//
//   - the session's pid
//   - whether the server is in recovery
//   - the text of its version
//   - the size of its lock table
//   - the value of tcp_user_timeout, and whether the session uses TCP
//   - deadlock_timeout in milliseconds, or 0 if the role may not use plpgsql
//   - its version as a number
//   - its system identifier, and its [Timeline]; the latter is empty in recovery
//
// [AboutAlone] is for servers that do not permit the last two.
const (
	About      = about + "(SELECT c.system_identifier FROM pg_catalog.pg_control_system() c), CASE WHEN " + inRecovery + " THEN '' ELSE " + Timeline + " END"
	AboutAlone = about + "0::pg_catalog.int8, ''"
)

const about = "SELECT pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery(), pg_catalog.version(), " +
	lockTable + ", " +
	"coalesce((SELECT s.setting::pg_catalog.int8 FROM pg_catalog.pg_settings s WHERE s.name = 'tcp_user_timeout'), 0), pg_catalog.inet_client_addr() IS NOT NULL, " +
	"coalesce((SELECT (extract(epoch FROM pg_catalog.current_setting('deadlock_timeout')::pg_catalog.interval) * 1000)::pg_catalog.int8 WHERE EXISTS (" + plpgsql + ")), 0), pg_catalog.current_setting('server_version_num')::pg_catalog.int4, "

// LocksInUse counts the entries of the server's lock table, of all databases, those of extensions
// among them.
const LocksInUse = "SELECT pg_catalog.count(DISTINCT ROW(l.locktype, l.database, l.relation, l.page, l.tuple, l.virtualxid, l.transactionid, l.classid, l.objid, l.objsubid)::pg_catalog.text) FROM pg_catalog.pg_locks l WHERE NOT l.fastpath"

// Ping is a statement that every live session answers.
const Ping = "SELECT 1"

// Guard is a ping that also cancels waits, and returns a row for each that it cancels:
//
//   - the slices of waiters, by pid, that another session waits for. It may wait for the waiter's
//     transaction, as CREATE INDEX CONCURRENTLY does, or for a lock that the waiter holds.
//   - the waits of leaving, by pid, which must end.
//
// It cancels only a session that is waiting for its lock now. Before and after that, a cancel would
// cause an error in the server's log. Reading pg_locks takes a while, so Guard reads the wait of
// each session again just before the cancel.
func Guard(waiters, leaving []int) string {
	inTheWay := ""
	if len(waiters) > 0 {
		inTheWay = " OR a.pid = ANY ('{" + joined(waiters) + "}'::pg_catalog.int4[]) " +
			"AND (EXISTS (SELECT FROM pg_catalog.pg_locks b WHERE b.locktype = 'virtualxid' AND NOT b.granted AND b.virtualxid = a.virtualtransaction) " +
			"OR EXISTS (SELECT FROM pg_catalog.pg_locks h JOIN pg_catalog.pg_locks b USING (locktype, database, classid, objid, objsubid) " +
			"WHERE h.locktype = 'advisory' AND h.pid = a.pid AND h.granted AND NOT b.granted AND b.pid <> a.pid))"
	}
	return "SELECT pg_catalog.pg_cancel_backend(a.pid) FROM pg_catalog.pg_locks a WHERE a.locktype = 'advisory' AND a.objsubid IN (1, 2) AND NOT a.granted " +
		"AND (a.pid = ANY ('{" + joined(leaving) + "}'::pg_catalog.int4[])" + inTheWay + ") " +
		"AND (SELECT g.wait_event_type = 'Lock' FROM pg_catalog.pg_stat_get_activity(a.pid) g)"
}

// Wanted lists those locks of the session at hand that others wait for, as [ScanHeld]
// reads them, without their modes.
const Wanted = "SELECT l.classid::pg_catalog.int8, l.objid::pg_catalog.int8, l.objsubid::pg_catalog.int4, '' FROM pg_catalog.pg_locks l WHERE l.locktype = 'advisory'" + ofKeys + " " +
	"GROUP BY l.database, l.classid, l.objid, l.objsubid HAVING pg_catalog.bool_or(l.pid = pg_catalog.pg_backend_pid() AND l.granted) AND pg_catalog.bool_or(NOT l.granted)"

func joined(pids []int) string {
	s := make([]string, len(pids))
	for i, p := range pids {
		s[i] = strconv.Itoa(p)
	}
	return strings.Join(s, ",")
}

// Milliseconds returns the text of a duration for a setting in milliseconds.
func Milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
