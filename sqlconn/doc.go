// Package sqlconn takes PostgreSQL advisory locks at session level, on a database/sql connection that
// the caller has pinned.
//
// A lock of this kind belongs to the connection, not to a transaction. It is held until [Unlock], or
// until the connection ends. A connection that is closed while it holds a lock goes back to the pool
// with the lock. [Do] and [TryDo] release the lock before they close the connection.
//
//	ran, err := sqlconn.TryDo(ctx, db.Conn, advisory.Int64(4820),
//		func(ctx context.Context, conn *sql.Conn) error {
//			return reconcile(ctx, conn)
//		})
//
// # A lock within a lock
//
// A second call for a key on the connection that holds it fails with [advisory.ErrAlreadyHeld].
//
// On another connection the call waits. So Do of a key, inside the work under that key of Do or of
// package xact, waits for its own caller. Give it [advisory.MaxWait] or a ctx that ends, or use
// TryDo.
//
// This package does not know the locks that package xact took in a transaction on the connection:
// PostgreSQL grants such a key once more. Inside the work of a Locker's Do, the Locker's Do of the
// same key, with the ctx of that work, fails with ErrAlreadyHeld.
//
// # What happens to the connection
//
// The caller's ctx never reaches the driver while a lock is at stake, because a driver whose context
// ends in the middle of a statement may leave the lock behind. After ctx has ended, a call waits one
// second for the pending answer, and releases what it was granted. The connection stays usable. If no
// answer comes, the call discards the connection and returns within two seconds of ctx's end.
//
// Close the rows of an earlier query before a call. While rows are open the call fails, and the
// connection can no longer be used.
//
// A connection is discarded, and never pooled, if the package does not know what it holds. Its next
// use returns [sql.ErrConnDone] or [driver.ErrBadConn], and the server frees its locks. On a link
// that drops packets the server detects that only by its own keepalive settings.
package sqlconn
