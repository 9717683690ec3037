package lockfn

import "github.com/pgadvisory/pgadvisory/advisory"

// Try makes one try at session level: a row if it is granted.
func Try(k advisory.Key, m advisory.Mode) string {
	return "SELECT 1 WHERE " + call(tryFn(m), k)
}

// TryAny tries the keys in turn, up to the first that is free. Its row count is that
// key's place, from 1; 0 if all were busy.
func TryAny(keys []advisory.Key, m advisory.Mode) string {
	return "SELECT 1 FROM pg_catalog.generate_series(1, (SELECT t.i FROM " + rows(keys) + " WHERE " + onRow(tryFn(m)) + " LIMIT 1))"
}

// Block waits on the server at session level until it is granted: a row.
func Block(k advisory.Key, m advisory.Mode) string {
	return "SELECT 1 FROM " + call(shared("pg_advisory_lock", m), k)
}

// Unlock releases one hold of session level: a row, or none if there was
// nothing to release, of which the server warns in its log.
func Unlock(k advisory.Key, m advisory.Mode) string {
	return "SELECT 1 WHERE " + call(unlockFn(m), k)
}

// UnlockIfHeld is [Unlock] without the warning, for a session of which one does
// not know: a row if there was something to release.
func UnlockIfHeld(k advisory.Key, m advisory.Mode) string {
	return "SELECT 1 WHERE CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE " + tagOf(k).held() +
		" AND l.mode = '" + lockMode(m) + "') THEN " +
		call(unlockFn(m), k) + " ELSE false END"
}

// HoldsAny answers with a row if the session holds the key in any mode, at
// session or transaction level.
func HoldsAny(k advisory.Key) string {
	return "SELECT 1 WHERE EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE " + tagOf(k).held() + ")"
}

// UnlockAll releases all holds of session level.
const UnlockAll = "SELECT pg_catalog.pg_advisory_unlock_all()"

// Terminate ends the session at hand, and with it everything it holds.
const Terminate = "SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid())"
