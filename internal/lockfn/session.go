package lockfn

import (
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// answer begins a statement whose answer is how many rows there are. Its column has a name
// that no other answer has, by which statement.Session knows it: statement.Answer.
const answer = "SELECT 1 AS pgadvisory "

// Try makes one try at session level, even on a hot standby. It returns a row if the lock is granted.
func Try(k advisory.Key, m advisory.Mode) string {
	return answer + "WHERE " + call(tryFn(m), k)
}

// The answers of TryOnPrimary and Block.
const (
	SessionBusy    = 0
	SessionGranted = 1
	SessionStandby = 2 // nothing was tried, because the server is in recovery
)

// TryOnPrimary makes one try at session level, unless the server is a hot standby.
func TryOnPrimary(k advisory.Key, m advisory.Mode) string {
	return onPrimary(call(tryFn(m), k))
}

func onPrimary(granted string) string {
	return fmt.Sprintf("SELECT pg_catalog.generate_series(1, CASE WHEN %s THEN %d WHEN %s THEN %d ELSE %d END) AS pgadvisory",
		inRecovery, SessionStandby, granted, SessionGranted, SessionBusy)
}

// TryAny tries the keys in turn on the session of that pid, up to the first that is free. Its row count
// is the position of that key, from 1, or 0 if no key was free. If it is more than there are keys,
// nothing was tried, for this is another session.
func TryAny(keys []advisory.Key, m advisory.Mode, pid int) string {
	return fmt.Sprintf(answer+"FROM pg_catalog.generate_series(1, CASE WHEN pg_catalog.pg_backend_pid() <> %d THEN %d ELSE (SELECT t.i FROM %s WHERE %s LIMIT 1) END)",
		pid, len(keys)+1, rows(keys), onRow(tryFn(m)))
}

// Block waits on the server at session level until the lock is granted, unless the server is a hot
// standby.
func Block(k advisory.Key, m advisory.Mode) string {
	return onPrimary(call(shared("pg_advisory_lock", m), k) + " IS NOT NULL") // void is not null
}

// Unlock releases one hold at session level. It returns a row, or none if there was nothing to
// release; then the server logs a warning.
func Unlock(k advisory.Key, m advisory.Mode) string {
	return answer + "WHERE " + call(unlockFn(m), k)
}

// UnlockIfHeld is [Unlock] without the warning, for a session that may not hold the lock. It
// returns a row if there was something to release.
func UnlockIfHeld(k advisory.Key, m advisory.Mode) string {
	return answer + "WHERE CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE " + tagOf(k).held() +
		" AND l.mode = '" + lockMode(m) + "') THEN " +
		call(unlockFn(m), k) + " ELSE false END"
}

// UnlockAlone is [Unlock] outside of a transaction block. Inside of one, whose work may not be
// committed yet, it releases nothing. See [SliceLimit].
func UnlockAlone(k advisory.Key, m advisory.Mode) string {
	return fmt.Sprintf(answer+"FROM pg_catalog.generate_series(1, CASE WHEN pg_catalog.now() = pg_catalog.statement_timestamp() THEN CASE WHEN %s THEN %d ELSE %d END "+
		"WHEN EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE %s AND l.mode = '%s') THEN %d ELSE %d END)",
		call(unlockFn(m), k), AloneReleased, AloneNotHeld, tagOf(k).held(), lockMode(m), AloneInTransaction, AloneNotHeld)
}

// The answers of [UnlockAlone].
const (
	AloneNotHeld       = 0
	AloneReleased      = 1
	AloneInTransaction = 2 // and the session holds the key
)

// HoldsAny returns a row if the session holds the key in any mode, at session or transaction level.
func HoldsAny(k advisory.Key) string {
	return answer + "WHERE EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE " + tagOf(k).held() + ")"
}

// UnlockAll releases all holds at session level.
const UnlockAll = "SELECT pg_catalog.pg_advisory_unlock_all() AS pgadvisory"

// Terminate ends this session, and with it everything that it holds.
const Terminate = "SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid())"
