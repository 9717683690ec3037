package lockfn

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// A tag is the three columns by which pg_locks shows a key: classid and objid
// are unsigned, and objsubid is 1 for a bigint and 2 for a pair (PostgreSQL
// manual, "pg_locks"). Locks of extensions have other numbers there: see ofKeys.
type tag struct {
	classid, objid uint32
	objsubid       int
}

func tagOf(k advisory.Key) tag {
	if class, object, ok := k.Pair(); ok {
		return tag{uint32(class), uint32(object), 2}
	}
	n, _ := k.Int64()
	return tag{uint32(n >> 32), uint32(n), 1}
}

func (t tag) key() advisory.Key {
	if t.objsubid == 2 {
		return advisory.Pair(int32(t.classid), int32(t.objid))
	}
	return advisory.Int64(int64(t.classid)<<32 | int64(t.objid))
}

// held selects the row of pg_locks l by which this session holds the key.
func (t tag) held() string {
	return fmt.Sprintf("%s AND l.classid = '%d' AND l.objid = '%d' AND l.objsubid = %d", heldHere, t.classid, t.objid, t.objsubid)
}

// heldHere selects the rows of pg_locks l of what the session at hand holds. That is in
// this database; to ask which that is would take a place in the server's lock table, which
// may be full.
//
// Locks of extensions are among them: others may wait for these, too.
const heldHere = "l.locktype = 'advisory' AND l.pid = pg_catalog.pg_backend_pid() AND l.granted"

// ofKeys leaves out the rows of pg_locks l that are of no key. Extensions take locks of the
// type "advisory" for purposes of their own, and tell them apart from those of the SQL functions by
// another objsubid.
const ofKeys = " AND l.objsubid IN (1, 2)"

// advisoryHere selects the advisory locks of this database, with those of extensions.
const advisoryHere = "l.locktype = 'advisory' AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())"

// Sorted returns the keys without duplicates, in the order in which every caller takes them.
func Sorted(keys []advisory.Key) []advisory.Key {
	keys = slices.Clone(keys)
	slices.SortFunc(keys, func(a, b advisory.Key) int {
		an, aok := packed(a)
		bn, bok := packed(b)
		if aok != bok {
			if bok {
				return -1
			}
			return 1
		}
		return cmp.Compare(an, bn)
	})
	return slices.Compact(keys)
}

// packed returns a key as one bigint, and whether it is a pair.
func packed(k advisory.Key) (n int64, pair bool) {
	if class, object, ok := k.Pair(); ok {
		return int64(class)<<32 | int64(uint32(object)), true
	}
	n, _ = k.Int64()
	return n, false
}

// rows returns a FROM item "t" with the columns n (the packed key), p (whether it is a pair) and i
// (its position, from 1), in this order. The keys are in two array literals, so pg_stat_statements
// sees one statement for any number of keys.
func rows(keys []advisory.Key) string {
	var n, p strings.Builder
	for i, k := range keys {
		if i > 0 {
			n.WriteByte(',')
			p.WriteByte(',')
		}
		num, pair := packed(k)
		n.WriteString(strconv.FormatInt(num, 10))
		p.WriteString(strconv.FormatBool(pair)[:1])
	}
	return fmt.Sprintf("(SELECT u.n, u.p, u.i FROM ROWS FROM (pg_catalog.unnest('{%s}'::pg_catalog.int8[]), pg_catalog.unnest('{%s}'::pg_catalog.bool[])) WITH ORDINALITY u(n, p, i) ORDER BY u.i OFFSET 0) t", &n, &p)
}

// onRow returns the call of a lock function on the key of a row of [rows].
func onRow(fn string) string {
	return fmt.Sprintf("CASE WHEN t.p THEN pg_catalog.%[1]s((t.n >> 32)::pg_catalog.int4, t.n::pg_catalog.bit(32)::pg_catalog.int4) ELSE pg_catalog.%[1]s(t.n) END", fn)
}

// call returns the call of a lock function on k.
func call(fn string, k advisory.Key) string {
	return "pg_catalog." + fn + "(" + k.SQL() + ")"
}

func shared(fn string, m advisory.Mode) string {
	if m == advisory.Shared {
		return fn + "_shared"
	}
	return fn
}

func tryFn(m advisory.Mode) string     { return shared("pg_try_advisory_lock", m) }
func tryXactFn(m advisory.Mode) string { return shared("pg_try_advisory_xact_lock", m) }
func unlockFn(m advisory.Mode) string  { return shared("pg_advisory_unlock", m) }

// lockMode returns a mode's name in pg_locks.
func lockMode(m advisory.Mode) string {
	if m == advisory.Shared {
		return "ShareLock"
	}
	return "ExclusiveLock"
}
