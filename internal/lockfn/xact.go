package lockfn

import (
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// freshSnapshot is true if each statement sees what was committed before it began. It is false if
// each statement sees only what was committed before the first one of the transaction.
const freshSnapshot = "pg_catalog.current_setting('transaction_isolation') LIKE 'read%'" // quicker to plan than IN

// always replaces freshSnapshot if a stale snapshot is accepted.
const always = "true"

func freshness(anyIsolation bool) string {
	if anyIsolation {
		return always
	}
	return freshSnapshot
}

// The answers of TryXact and TryXactOwn.
const (
	XactBusy    = 0 // another session holds the key
	XactGranted = 1 // at transaction level
	XactStale   = 2 // nothing was tried, because the snapshot would be older than the lock
	XactSession = 2 // TryXactOwn: granted, at session level
	XactStandby = 3 // nothing was tried, because the server is in recovery
)

// TryXact makes one try at transaction level, in a transaction of the caller.
func TryXact(k advisory.Key, m advisory.Mode, anyIsolation bool) string {
	return fmt.Sprintf("SELECT pg_catalog.generate_series(1, CASE WHEN %s THEN %d WHEN %s THEN CASE WHEN %s THEN 1 ELSE 0 END ELSE %d END) AS pgadvisory",
		inRecovery, XactStandby, freshness(anyIsolation), call(tryXactFn(m), k), XactStale)
}

// TryXactOwn makes one try in a transaction that may be restarted: under READ COMMITTED at
// transaction level, otherwise at session level. [Restart] must follow the latter.
func TryXactOwn(k advisory.Key, m advisory.Mode, anyIsolation bool) string {
	return fmt.Sprintf("SELECT pg_catalog.generate_series(1, CASE WHEN %s THEN %d WHEN %s THEN CASE WHEN %s THEN 1 ELSE 0 END WHEN %s THEN %d ELSE 0 END) AS pgadvisory",
		inRecovery, XactStandby, freshness(anyIsolation), call(tryXactFn(m), k), call(tryFn(m), k), XactSession)
}

// RollbackAndChain restarts a transaction. It keeps isolation level, read only and deferrable, and
// reverts SET LOCAL.
const RollbackAndChain = "ROLLBACK AND CHAIN"

// Restart restarts the transaction, and converts the session's hold to one of the new transaction.
// It returns a row if that succeeded.
func Restart(k advisory.Key, m advisory.Mode) string {
	return RollbackAndChain + "; " + answer + "WHERE CASE WHEN " + call(tryXactFn(m), k) + " THEN " + call(unlockFn(m), k) + " ELSE false END"
}

// TryXactAll tries the keys in turn, up to the first that is not free. Its row count is:
//
//   - the position of that key, from 1
//   - 0 if all were granted
//   - len(keys)+1 if nothing was tried, because the snapshot would be older than the lock
//   - len(keys)+2 on a hot standby
func TryXactAll(keys []advisory.Key, m advisory.Mode, anyIsolation bool) string {
	return fmt.Sprintf("SELECT pg_catalog.generate_series(1, CASE WHEN %s THEN %d WHEN %s THEN (SELECT t.i FROM %s WHERE NOT %s LIMIT 1) ELSE %d END) AS pgadvisory",
		inRecovery, len(keys)+2, freshness(anyIsolation), rows(keys), onRow(tryXactFn(m)), len(keys)+1)
}

// TryXactAny tries the keys in turn, up to the first that is free. Its row count is:
//
//   - the position of that key, from 1
//   - 0 if no key was free
//   - len(keys)+1 if nothing was tried, because the snapshot would be older than the lock
//   - len(keys)+2 on a hot standby
func TryXactAny(keys []advisory.Key, m advisory.Mode, anyIsolation bool) string {
	return fmt.Sprintf("SELECT pg_catalog.generate_series(1, CASE WHEN %s THEN %d WHEN %s THEN (SELECT t.i FROM %s WHERE %s LIMIT 1) ELSE %d END) AS pgadvisory",
		inRecovery, len(keys)+2, freshness(anyIsolation), rows(keys), onRow(tryXactFn(m)), len(keys)+1)
}

// Savepoint, and the two ways to end it: keep the locks that were taken since, or drop them.
const (
	Savepoint = "SAVEPOINT pgadvisory"
	Keep      = "RELEASE SAVEPOINT pgadvisory"
	Drop      = "ROLLBACK TO SAVEPOINT pgadvisory; RELEASE SAVEPOINT pgadvisory"
)
