package lockfn

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Setting is one that a Locker's session sets for itself.
type Setting struct{ Name, Value string }

// SetAll sets those settings that the server has.
func SetAll(settings []Setting) string {
	var values []string
	for _, s := range settings {
		values = append(values, fmt.Sprintf("('%s', %s)", s.Name, literal(s.Value)))
	}
	return "SELECT pg_catalog.set_config(s.name, v.value, false) FROM (VALUES " + strings.Join(values, ", ") +
		") v(name, value) JOIN pg_catalog.pg_settings s ON s.name = v.name"
}

// About asks what a Locker has to know of a session's server: its pid, whether the
// server is in recovery, its version in words, the size of its lock table,
// tcp_user_timeout as it is in force, with whether the session is one of TCP, and
// deadlock_timeout in milliseconds, or nought where plpgsql may not be used.
const About = "SELECT pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery(), pg_catalog.version(), " +
	lockTable + ", " +
	"coalesce((SELECT s.setting::pg_catalog.int8 FROM pg_catalog.pg_settings s WHERE s.name = 'tcp_user_timeout'), 0), pg_catalog.inet_client_addr() IS NOT NULL, " +
	"coalesce((SELECT (extract(epoch FROM pg_catalog.current_setting('deadlock_timeout')::pg_catalog.interval) * 1000)::pg_catalog.int8 WHERE EXISTS (" + plpgsql + ")), 0)"

// LocksInUse counts the entries of the server's lock table, of all databases, those of extensions
// among them.
const LocksInUse = "SELECT pg_catalog.count(DISTINCT ROW(l.locktype, l.database, l.relation, l.page, l.tuple, l.virtualxid, l.transactionid, l.classid, l.objid, l.objsubid)::pg_catalog.text) FROM pg_catalog.pg_locks l WHERE NOT l.fastpath"

// Ping asks for a sign of life.
const Ping = "SELECT 1"

// Guard is a ping that also cancels the slices of those waiters, by pid, for whose
// transaction somebody waits, CREATE INDEX CONCURRENTLY, say, or for a lock that they hold;
// and of those that are to wait no more. It returns a row for each that it cancels.
//
// It cancels only what waits for its lock now: before and after that, a cancel would be an
// error in the server's log. Reading pg_locks takes a while, so the wait of each is read again
// just before the cancel.
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

// Milliseconds is a setting's value in the unit of its kind.
func Milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
