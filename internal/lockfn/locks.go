package lockfn

import (
	"database/sql"
	"strconv"
	"strings"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// Held lists the keys that the session at hand holds; [ScanHeld] reads a row.
const Held = "SELECT l.classid::pg_catalog.int8 AS pgadvisory, l.objid::pg_catalog.int8, l.objsubid::pg_catalog.int4, l.mode FROM pg_catalog.pg_locks l WHERE " +
	heldHere + ofKeys + " ORDER BY 1, 2, 3, 4"

// HeldOn is [Held] with an additional row for the session's pid. [ScanHeldOn] reads a row.
const HeldOn = "SELECT pg_catalog.pg_backend_pid()::pg_catalog.int8, 0::pg_catalog.int8, 0::pg_catalog.int4, '' UNION ALL (" + Held + ")"

// ScanHeld reads a row of [Held].
func ScanHeld(rows *sql.Rows) (advisory.HeldLock, error) {
	l, _, err := ScanHeldOn(rows)
	return l, err
}

// ScanHeldOn reads a row of [HeldOn]: a lock, or the pid if pid is not 0.
func ScanHeldOn(rows *sql.Rows) (l advisory.HeldLock, pid int, err error) {
	var (
		classid, objid int64
		objsubid       int
		mode           string
	)
	if err := rows.Scan(&classid, &objid, &objsubid, &mode); err != nil {
		return advisory.HeldLock{}, 0, err
	}
	if objsubid == 0 { // this row has the pid
		return advisory.HeldLock{}, int(classid), nil
	}
	return advisory.HeldLock{Key: tag{uint32(classid), uint32(objid), objsubid}.key(), Mode: modeOf(mode)}, 0, nil
}

// Holders lists who holds a key, which [HoldersArgs] gives. [ScanHolder] reads a row. A role
// without the privileges of pg_read_all_stats sees neither client nor times of others. A prepared
// transaction has no pid.
//
// The key is a parameter, because rows are read here, and a driver that caches statements by their
// text should cache one.
const Holders = "SELECT coalesce(l.pid, 0) AS pgadvisory, l.mode, coalesce(a.usename, ''), coalesce(a.application_name, ''), " +
	"coalesce(pg_catalog.host(a.client_addr) || ':' || a.client_port, CASE WHEN a.client_port = -1 THEN 'local' END, ''), " +
	beginMicros + "coalesce(a.xact_start, a.state_change)" + endMicros + ", " + beginMicros + "a.backend_start" + endMicros + ", coalesce(CASE WHEN l.pid IS NULL THEN (" + gid + ") END, '') " +
	"FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid WHERE " + freshActivity + " AND " + advisoryHere +
	" AND l.classid = ($1::pg_catalog.int8)::pg_catalog.oid AND l.objid = ($2::pg_catalog.int8)::pg_catalog.oid" +
	" AND l.objsubid = $3::pg_catalog.int8 AND l.granted ORDER BY 1"

// gid asks for the identifier of the prepared transaction that has the row l of pg_locks, by the lock
// on its own transaction id. See [Everybody].
const gid = "SELECT CASE WHEN pg_catalog.count(*) = 1 THEN pg_catalog.min(p.gid) END FROM pg_catalog.pg_prepared_xact() p " +
	"JOIN pg_catalog.pg_locks t ON t.locktype = 'transactionid' AND t.pid IS NULL AND t.transactionid = p.transaction " +
	"WHERE t.virtualtransaction = l.virtualtransaction"

// HoldersArgs returns the parameters of [Holders].
func HoldersArgs(k advisory.Key) []any {
	t := tagOf(k)
	return []any{int64(t.classid), int64(t.objid), int64(t.objsubid)}
}

// HoldersOf is [Holders] with the key in its text, for a driver that needs an extra round trip for
// parameters, and caches nothing.
func HoldersOf(k advisory.Key) string {
	t := tagOf(k)
	return strings.NewReplacer(
		"$1", strconv.FormatUint(uint64(t.classid), 10),
		"$2", strconv.FormatUint(uint64(t.objid), 10),
		"$3", strconv.Itoa(int(t.objsubid)),
	).Replace(Holders)
}

// ScanHolder reads a row of [Holders] of k.
func ScanHolder(rows *sql.Rows, k advisory.Key) (advisory.Holder, error) {
	var (
		h            = advisory.Holder{Key: k}
		mode         string
		since, start sql.NullInt64
	)
	if err := rows.Scan(&h.PID, &mode, &h.User, &h.Application, &h.Client, &since, &start, &h.Prepared); err != nil {
		return h, err
	}
	h.Mode, h.Since, h.BackendStart = modeOf(mode), timeOf(since), timeOf(start)
	return h, nil
}

func modeOf(lockMode string) advisory.Mode {
	if lockMode == "ShareLock" {
		return advisory.Shared
	}
	return advisory.Exclusive
}
