// Package xact takes PostgreSQL advisory locks at transaction level. The server releases them when
// the transaction commits or rolls back, at the moment when its changes become visible. There is no
// unlock.
//
//	err := xact.Do(ctx, db.BeginTx, advisory.Name("billing", "close-month"),
//		func(ctx context.Context, tx *sql.Tx) error {
//			return closeMonth(ctx, tx)
//		})
//
// [Do] and [TryDo] begin the transaction and end it. The other functions take locks in a
// transaction of the caller.
//
// # Fresh snapshots
//
// Under REPEATABLE READ and SERIALIZABLE a transaction sees the database as of its first statement.
// If that statement takes the lock, the transaction may not see what the last holder committed. Do
// and TryDo avoid that. In a transaction of the caller, the other functions fail with
// [advisory.ErrStaleSnapshot], unless [AnyIsolation] is given.
//
// # A lock within a lock
//
// A second call for a key in the transaction that holds it fails with [advisory.ErrAlreadyHeld].
//
// In another transaction the call waits. So Do of a key, inside the work under that key of Do or of
// package sqlconn, opens another connection and waits for its own caller. Give it
// [advisory.MaxWait] or a ctx that ends, or use TryDo.
//
// This package does not know the locks that package sqlconn took on the transaction's connection:
// PostgreSQL grants such a key once more.
//
// # Unsafe servers
//
// On a hot standby each function fails with [advisory.ErrUnsafeServer]: its locks would exclude nobody
// on the primary. A pooler in transaction mode does no harm. Whether a server that is not PostgreSQL
// really locks takes two connections to find out: [github.com/pgadvisory/pgadvisory/inspect.Check]
// tries its functions, this package does not.
//
// # What happens to the transaction
//
// The caller's ctx never reaches the driver, because a driver whose context ends in the middle of a
// statement breaks the transaction. After ctx has ended, a call waits one second for the pending
// answer. The transaction stays usable, unless it was begun with the same ctx: then database/sql
// rolls it back.
//
// If no answer comes, the call discards the connection and returns within two seconds of ctx's end.
// Rollback of such a transaction may then block as long as lib/pq and the kernel do. Do and TryDo
// do not wait for it.
package xact
