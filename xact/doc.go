// Package xact takes PostgreSQL advisory locks at transaction level: the server
// releases them when the transaction commits or rolls back, in the same moment in
// which what it wrote becomes visible. There is no unlock.
//
//	err := xact.Do(ctx, db.BeginTx, advisory.Name("billing", "close-month"),
//		func(ctx context.Context, tx *sql.Tx) error {
//			return closeMonth(ctx, tx)
//		})
//
// [Do] and [TryDo] begin the transaction, and end it. The other functions take
// locks in a transaction of the caller's.
//
// # Fresh snapshots
//
// Under REPEATABLE READ and SERIALIZABLE a transaction sees the database as of its
// first statement. If that is the one that takes the lock, it may see what was true
// before the last holder committed. Do and TryDo see to that. In a transaction that
// they did not begin, the other functions refuse with [advisory.ErrStaleSnapshot],
// unless [AnyIsolation] is given.
//
// # A lock within a lock
//
// A second call for a key in the transaction that has it is
// [advisory.ErrAlreadyHeld]. In another transaction it waits: Do of a key inside the
// work under that key, of Do or of package sqlconn, opens another connection and
// waits for its own caller. Give it [advisory.MaxWait] or a ctx that ends, or use
// TryDo. A lock that package sqlconn took on the transaction's connection is not
// known here, and PostgreSQL grants the key once more.
//
// # What happens to the transaction
//
// The caller's ctx never reaches the driver, for a driver whose context ends in the
// middle of a statement ruins the transaction. Once ctx has ended, a call waits a
// second for the answer that is under way; the transaction stays usable, unless it
// was itself begun with that ctx: then database/sql rolls it back. If no answer
// comes, the connection is given up, and the call returns within two seconds of
// ctx's end. (Rollback of such a transaction may then take as long as lib/pq and the
// kernel do. Do and TryDo do not wait for it.)
package xact
