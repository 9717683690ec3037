package lockfn

import (
	"fmt"
	"strings"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// LeaveMark leaves a mark in pg_stat_activity, in the text of its query: token, of letters and
// digits, and a letter. It counts the sessions that show the token with this letter, including its
// own, and those with another letter. [MarksSeen] reads the answer.
//
// The mark is also at the beginning, because the server may truncate queries.
func LeaveMark(token string, letter byte) string {
	return fmt.Sprintf("/*%[1]s%[2]c*/ SELECT 1 FROM pg_catalog.generate_series(1, (SELECT CASE WHEN pg_catalog.bool_or(m.pid = pg_catalog.pg_backend_pid()) "+
		"THEN 1 + least(pg_catalog.count(*) FILTER (WHERE m.letter = '%[2]c'), 2) + 3 * least(pg_catalog.count(*) FILTER (WHERE m.letter <> '%[2]c'), 2) ELSE 1 END::pg_catalog.int4 "+
		"FROM (SELECT a.pid, pg_catalog.substr(a.query, pg_catalog.strpos(a.query, t.token) + %[3]d, 1) AS letter "+
		"FROM pg_catalog.pg_stat_activity a, (SELECT pg_catalog.left('%[1]s%[2]c', -1) AS token) t "+
		"WHERE a.backend_type = 'client backend' AND pg_catalog.strpos(a.query, t.token) > 0) m))", token, letter, len(token))
}

// MarksSeen reads the answer of [LeaveMark]: how many sessions show its own mark and how many
// another, up to two of each. own is 0 if the session does not see itself, as without
// track_activities.
func MarksSeen(rows int64) (own, other int) {
	return int(rows-1) % 3, int(rows-1) / 3
}

// RoleAndServer answers with a number of rows that depends on the role of the session and on when its
// server was started. Two roles, or two servers, rarely have the same number.
const RoleAndServer = "SELECT 1 FROM pg_catalog.generate_series(1, 1 + ((" +
	"(SELECT a.usesysid::pg_catalog.int8 FROM pg_catalog.pg_stat_activity a WHERE a.pid = pg_catalog.pg_backend_pid())" +
	" + (pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time()) * 1000000)::pg_catalog.int8" +
	") % 997)::pg_catalog.int4)"

// ProbeKeys are the keys that a probe holds on one connection: a bigint and a pair of each kind.
type ProbeKeys struct {
	Exclusive, Shared           [2]advisory.Key // taken by the try functions
	Blocking, BlockingAndShared [2]advisory.Key // taken by the functions that wait
}

type probeKey struct {
	advisory.Key
	mode     advisory.Mode
	blocking bool
}

// taker returns the function that takes the key.
func (k probeKey) taker() string {
	if k.blocking {
		return shared("pg_advisory_lock", k.mode)
	}
	return tryFn(k.mode)
}

// all returns the four keys of each space, exclusive tries first.
func (p ProbeKeys) all() (all []probeKey) {
	for i := range 2 {
		all = append(all, probeKey{p.Exclusive[i], advisory.Exclusive, false}, probeKey{p.Shared[i], advisory.Shared, false},
			probeKey{p.Blocking[i], advisory.Exclusive, true}, probeKey{p.BlockingAndShared[i], advisory.Shared, true})
	}
	return all
}

// Count returns the number of keys.
func (p ProbeKeys) Count() int64 { return int64(len(p.all())) }

// TakeAll takes the keys, which are free. It returns a row if all were granted.
func TakeAll(keys ProbeKeys) string {
	var b strings.Builder
	b.WriteString("SELECT 1 WHERE CASE")
	for _, k := range keys.all() {
		if k.blocking {
			fmt.Fprintf(&b, " WHEN (%s)::pg_catalog.text = 'none' THEN false", call(k.taker(), k.Key))
		} else {
			fmt.Fprintf(&b, " WHEN NOT %s THEN false", call(k.taker(), k.Key))
		}
	}
	return b.String() + " ELSE true END"
}

// ReleaseAll releases those of the keys that the session holds, without a warning. It returns a row
// for each.
func ReleaseAll(keys ProbeKeys) string {
	var b strings.Builder
	b.WriteString("SELECT 1 FROM pg_catalog.generate_series(1, 0")
	for _, k := range keys.all() {
		fmt.Fprintf(&b, " + CASE WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE %s AND l.mode = '%s') THEN 0 WHEN %s THEN 1 ELSE 0 END",
			tagOf(k.Key).held(), lockMode(k.mode), call(unlockFn(k.mode), k.Key))
	}
	return b.String() + ")"
}

// A trial is a function that must not grant a key that another session holds.
type trial struct {
	fn     string
	key    advisory.Key
	unlock string // the function that releases it; empty if the end of the statement does
	taker  string // the function that took the key, if it is of another kind
}

// String names the functions that granted the key twice.
func (t trial) String() string {
	if t.taker == "" {
		return signature(t.fn, t.key)
	}
	return signature(t.fn, t.key) + " of a key taken by " + signature(t.taker, t.key)
}

// trials returns the trials at session level, and after them those at transaction level.
func (p ProbeKeys) trials() []trial {
	var session, xact []trial
	for i := range 2 {
		for _, m := range []advisory.Mode{advisory.Exclusive, advisory.Shared} {
			if i > 0 || m == advisory.Shared { // the first is TryBeside's own
				session = append(session, trial{fn: tryFn(m), key: p.Exclusive[i], unlock: unlockFn(m)})
			}
			xact = append(xact, trial{fn: tryXactFn(m), key: p.Exclusive[i]})
		}
		x := advisory.Exclusive // on the three keys of this space that others than it took
		for _, k := range p.all()[4*i+1 : 4*i+4] {
			session = append(session, trial{tryFn(x), k.Key, unlockFn(x), k.taker()})
			xact = append(xact, trial{tryXactFn(x), k.Key, "", k.taker()})
		}
	}
	return append(session, xact...)
}

// TryBeside tries keys that another connection holds by [TakeAll], in all modes, at session level and
// then at transaction level, and releases what it is granted, in one statement. If it is granted the first key, it also
// releases what its session held before. It then checks whether the server returns true for every
// release.
func TryBeside(keys ProbeKeys) string { return tryBeside(keys, false) }

// TryBesideInSession is [TryBeside] at session level alone.
func TryBesideInSession(keys ProbeKeys) string { return tryBeside(keys, true) }

func tryBeside(keys ProbeKeys, sessionOnly bool) string {
	k := keys.Exclusive[0]
	unlock := call(unlockFn(advisory.Exclusive), k)
	var others strings.Builder
	for i, t := range keys.trials() {
		if sessionOnly && t.unlock == "" {
			break
		}
		fmt.Fprintf(&others, " WHEN %s THEN ", call(t.fn, t.key))
		if n := besideTrial + i; t.unlock == "" {
			fmt.Fprint(&others, n)
		} else {
			fmt.Fprintf(&others, "CASE WHEN %s THEN %d ELSE %[2]d END", call(t.unlock, t.key), n)
		}
	}
	return fmt.Sprintf("SELECT 1 FROM pg_catalog.generate_series(1, CASE WHEN NOT %s THEN CASE%s ELSE %d END WHEN NOT %s THEN %d WHEN NOT %[4]s THEN %[6]d WHEN NOT %[4]s THEN %[7]d ELSE %[5]d END)",
		call(tryFn(advisory.Exclusive), k), &others, BesideBusy, unlock, BesideUnreal, BesideGranted, BesideSame)
}

// The answers of [TryBeside]. [BesideFunction] reads the others.
const (
	BesideBusy    = 1 + iota // correct: no key was granted
	BesideGranted            // the first key was granted although another session holds it
	BesideSame               // the first key was granted because the same session holds it
	BesideUnreal             // the functions do not lock
	besideTrial
)

// BesideFunction returns the function that granted a key although another session holds it, and
// whether it is one at transaction level: then none at session level did. ok is false for other
// answers.
func BesideFunction(keys ProbeKeys, rows int64) (fn string, xact, ok bool) {
	t := trial{fn: tryFn(advisory.Exclusive), key: keys.Exclusive[0], unlock: unlockFn(advisory.Exclusive)}
	all := keys.trials()
	switch i := rows - besideTrial; {
	case rows == BesideGranted || rows == BesideUnreal:
	case i >= 0 && i < int64(len(all)):
		t = all[i]
	default:
		return "", false, false
	}
	return t.String(), t.unlock == "", true
}

// signature returns a function with the types of its arguments.
func signature(fn string, k advisory.Key) string {
	if _, _, pair := k.Pair(); pair {
		return fn + "(int, int)"
	}
	return fn + "(bigint)"
}

// HasPID asks whether the server is PostgreSQL, whether the session has the given pid, and whether it
// is on a primary.
func HasPID(pid int64) string {
	return fmt.Sprintf("SELECT pg_catalog.generate_series(1, CASE WHEN %s THEN %d WHEN pg_catalog.pg_backend_pid() <> %d THEN %d WHEN %s THEN %d ELSE %d END) AS pgadvisory",
		otherServer, OtherServer, pid, OtherPID, inRecovery, SamePIDOnStandby, SamePIDOnPrimary)
}

// The answers of [HasPID].
const (
	OtherPID         = 0
	SamePIDOnPrimary = 1
	SamePIDOnStandby = 2
	OtherServer      = 3 // not PostgreSQL, whatever the pid
)
