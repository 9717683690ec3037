package lockfn

import (
	"fmt"
	"strconv"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// Waits returns the comment by which a waiter shows in pg_stat_activity what it waits for: mode,
// classid, objid and objsubid. Every statement of a wait begins with it, after comments that a
// driver may add. No other statement contains it.
func Waits(k advisory.Key, m advisory.Mode) string {
	t, letter := tagOf(k), "x"
	if m == advisory.Shared {
		letter = "s"
	}
	return fmt.Sprintf("/*pgadvisory waits %s %d %d %d*/ ", letter, t.classid, t.objid, t.objsubid)
}

// MaxSlice is the longest slice of a wait that [Guard] does not watch. A slice must end before
// deadlock_timeout (1 s by default). Then a CREATE INDEX CONCURRENTLY that waits for the waiter's
// snapshot continues, and the server sees no deadlock.
const MaxSlice = 400 * time.Millisecond

// minSlice is the length below which a wait polls instead.
const minSlice = 50 * time.Millisecond

// sliceUnit is the time that a row of SliceLimit stands for.
const sliceUnit = 10 * time.Millisecond

// plpgsql returns a row if the role may use plpgsql.
const plpgsql = "SELECT FROM pg_catalog.pg_language g WHERE g.lanname = 'plpgsql' AND pg_catalog.has_language_privilege(g.oid, 'USAGE')"

// SliceLimit asks how long a slice may be. [SliceLength] reads the answer. The limit is 0 inside a
// transaction of the caller, which would keep a slice's snapshot and its settings, if the role may not
// use plpgsql, and on a server that is not PostgreSQL, where nobody checks what a slice uses. If own
// is true the transaction is one of this library.
//
// A statement outside a transaction block begins its own transaction, so now() and
// statement_timestamp() are equal.
func SliceLimit(own bool) string {
	alone := "pg_catalog.now() = pg_catalog.statement_timestamp()"
	if own {
		alone = "true"
	}
	return fmt.Sprintf(answer+"FROM pg_catalog.generate_series(1, CASE WHEN %s"+
		" AND NOT "+otherServer+
		" AND EXISTS ("+plpgsql+")"+
		" THEN least(%d, (extract(epoch FROM pg_catalog.current_setting('deadlock_timeout')::pg_catalog.interval) * %d)::pg_catalog.int4) ELSE 0 END)",
		alone, MaxSlice/sliceUnit, MaxSlice/sliceUnit)
}

// SliceLength reads the answer of [SliceLimit]. 0 means that the wait must poll.
func SliceLength(rows int64) time.Duration {
	if d := time.Duration(rows) * sliceUnit; d >= minSlice {
		return d
	}
	return 0
}

// The answers of a slice.
const (
	SliceTimeout  = 0 // the time of the slice is over
	SliceGranted  = 1 // at session level
	SliceDeadlock = 2 // the server found a deadlock and chose this waiter
	SliceCanceled = 3 // somebody called pg_cancel_backend
)

// Slice waits for at most d, and takes the lock at session level, in one message.
//
// It waits for the lock at transaction level, inside a block of plpgsql, and then takes it at
// session level. A timeout or cancel reverts the transaction-level lock together with the block. In
// a session-level wait it could leave the lock behind. The server does not log errors that the
// block catches.
//
// The settings end with the message's own transaction. The answer is in a custom setting, since DO
// returns nothing. The text of the block does not depend on the key, so pg_stat_statements has few
// entries.
func Slice(k advisory.Key, m advisory.Mode, d time.Duration) string {
	var a, b int64
	block := &sliceBlocks[m][0]
	if class, object, ok := k.Pair(); ok {
		a, b = int64(class), int64(object)
		block = &sliceBlocks[m][1]
	} else {
		a, _ = k.Int64()
	}
	ms := max(d.Milliseconds(), 1) // 0 would be no limit
	return "SELECT " +
		setLocal("lock_timeout", strconv.FormatInt(ms, 10)) + ", " +
		setLocal("statement_timeout", "0") + ", " +
		setLocal("pgadvisory.a", strconv.FormatInt(a, 10)) + ", " +
		setLocal("pgadvisory.b", strconv.FormatInt(b, 10)) + ", " +
		setLocal("pgadvisory.got", "0") + "; " +
		*block +
		"; " + answer + "FROM pg_catalog.generate_series(1, pg_catalog.current_setting('pgadvisory.got')::pg_catalog.int4)"
}

func setLocal(name, value string) string {
	return "pg_catalog.set_config('" + name + "', '" + value + "', true)"
}

var sliceBlocks = func() (blocks [2][2]string) {
	const (
		a = "pg_catalog.current_setting('pgadvisory.a')::pg_catalog."
		b = "pg_catalog.current_setting('pgadvisory.b')::pg_catalog."
	)
	for _, m := range []advisory.Mode{advisory.Exclusive, advisory.Shared} {
		for i, args := range []string{a + "int8", a + "int4, " + b + "int4"} {
			// The tag of pg_locks, from the same settings.
			tag := "l.classid = ((" + a + "int8 >> 32) & 4294967295)::pg_catalog.oid AND l.objid = (" + a + "int8 & 4294967295)::pg_catalog.oid AND l.objsubid = 1"
			if i == 1 {
				tag = "l.classid = (" + a + "int8 & 4294967295)::pg_catalog.oid AND l.objid = (" + b + "int8 & 4294967295)::pg_catalog.oid AND l.objsubid = 2"
			}
			blocks[m][i] = "DO $pgadvisory$BEGIN " +
				"PERFORM pg_catalog." + shared("pg_advisory_xact_lock", m) + "(" + args + "); " +
				"PERFORM pg_catalog." + shared("pg_advisory_lock", m) + "(" + args + "); " +
				"PERFORM " + setLocal("pgadvisory.got", strconv.Itoa(SliceGranted)) + "; " +
				"EXCEPTION WHEN lock_not_available THEN NULL; " +
				"WHEN deadlock_detected THEN PERFORM " + setLocal("pgadvisory.got", strconv.Itoa(SliceDeadlock)) + "; " +
				// A cancel may come after the session-level lock, which the
				// end of the block does not undo.
				"WHEN query_canceled THEN PERFORM " + setLocal("pgadvisory.got", strconv.Itoa(SliceCanceled)) + "; " +
				"IF EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE " + heldHere + " AND " + tag +
				" AND l.mode = '" + lockMode(m) + "') THEN " +
				"PERFORM pg_catalog." + unlockFn(m) + "(" + args + "); END IF; " +
				"END$pgadvisory$"
		}
	}
	return blocks
}()
