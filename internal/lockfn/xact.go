package lockfn

import (
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// fresh is true where a statement sees what was committed before it began, as
// opposed to before the transaction's first.
const fresh = "pg_catalog.current_setting('transaction_isolation') LIKE 'read%'" // quicker to plan than IN

// always stands for fresh where a stale snapshot is accepted.
const always = "true"

func freshness(anyIsolation bool) string {
	if anyIsolation {
		return always
	}
	return fresh
}

// The answers of TryXact and TryXactOwn.
const (
	XactBusy    = 0 // somebody else has it
	XactGranted = 1 // at transaction level
	XactStale   = 2 // nothing was tried, for the snapshot would be older than the lock
	XactSession = 2 // TryXactOwn: granted, at session level
	XactStandby = 3 // nothing was tried, for the server is in recovery
)

// TryXact makes one try at transaction level, in a transaction of the caller's.
func TryXact(k advisory.Key, m advisory.Mode, anyIsolation bool) string {
	return fmt.Sprintf("SELECT pg_catalog.generate_series(1, CASE WHEN %s THEN %d WHEN %s THEN CASE WHEN %s THEN 1 ELSE 0 END ELSE %d END) AS pgadvisory",
		inRecovery, XactStandby, freshness(anyIsolation), call(tryXactFn(m), k), XactStale)
}

// TryXactOwn makes one try in a transaction that may be started over: under READ
// COMMITTED at transaction level, else at session level, to be followed by
// [Restart].
func TryXactOwn(k advisory.Key, m advisory.Mode, anyIsolation bool) string {
	return fmt.Sprintf("SELECT pg_catalog.generate_series(1, CASE WHEN %s THEN %d WHEN %s THEN CASE WHEN %s THEN 1 ELSE 0 END WHEN %s THEN %d ELSE 0 END) AS pgadvisory",
		inRecovery, XactStandby, freshness(anyIsolation), call(tryXactFn(m), k), call(tryFn(m), k), XactSession)
}

// RollbackAndChain starts a transaction over. Isolation level, read only and
// deferrable stay; what SET LOCAL had set is gone.
const RollbackAndChain = "ROLLBACK AND CHAIN"

// Restart starts the transaction over, and turns the session's hold into one of
// the new transaction: a row if so.
func Restart(k advisory.Key, m advisory.Mode) string {
	return RollbackAndChain + "; " + answer + "WHERE CASE WHEN " + call(tryXactFn(m), k) + " THEN " + call(unlockFn(m), k) + " ELSE false END"
}

// TryXactAll tries the keys in turn, up to the first that is busy. Its row count
// is that key's place, from 1; 0 if all were granted; len(keys)+1 if nothing was
// tried, for the snapshot would be older than the lock; len(keys)+2 on a hot standby.
func TryXactAll(keys []advisory.Key, m advisory.Mode, anyIsolation bool) string {
	return fmt.Sprintf("SELECT pg_catalog.generate_series(1, CASE WHEN %s THEN %d WHEN %s THEN (SELECT t.i FROM %s WHERE NOT %s LIMIT 1) ELSE %d END) AS pgadvisory",
		inRecovery, len(keys)+2, freshness(anyIsolation), rows(keys), onRow(tryXactFn(m)), len(keys)+1)
}

// TryXactAny tries the keys in turn, up to the first that is free. Its row count
// is that key's place, from 1; 0 if all were busy; len(keys)+1 if nothing was
// tried, for the snapshot would be older than the lock; len(keys)+2 on a hot standby.
func TryXactAny(keys []advisory.Key, m advisory.Mode, anyIsolation bool) string {
	return fmt.Sprintf("SELECT pg_catalog.generate_series(1, CASE WHEN %s THEN %d WHEN %s THEN (SELECT t.i FROM %s WHERE %s LIMIT 1) ELSE %d END) AS pgadvisory",
		inRecovery, len(keys)+2, freshness(anyIsolation), rows(keys), onRow(tryXactFn(m)), len(keys)+1)
}

// Savepoint, and the two ways to leave it: keep what was taken since, or drop it.
const (
	Savepoint = "SAVEPOINT pgadvisory"
	Keep      = "RELEASE SAVEPOINT pgadvisory"
	Drop      = "ROLLBACK TO SAVEPOINT pgadvisory; RELEASE SAVEPOINT pgadvisory"
)
