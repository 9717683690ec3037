// Package sqlconn takes PostgreSQL advisory locks at session level, on a
// connection of database/sql that the caller has pinned.
//
// A lock of this kind belongs to the connection, not to a transaction: it is
// held until [Unlock], or until the connection ends. A connection that is
// closed while it holds a lock goes back to the pool with it; [Do] and [TryDo]
// see to that by themselves.
//
//	ran, err := sqlconn.TryDo(ctx, db.Conn, advisory.Int64(4820),
//		func(ctx context.Context, conn *sql.Conn) error {
//			return reconcile(ctx, conn)
//		})
//
// # A lock within a lock
//
// A second call for a key on the connection that has it is
// [advisory.ErrAlreadyHeld]. On another connection it waits: Do of a key inside the
// work under that key, of Do or of package xact, waits for its own caller. Give it
// [advisory.MaxWait] or a ctx that ends, or use TryDo. A lock that package xact took in
// a transaction on the connection is not known here, and PostgreSQL grants the key
// once more. In the work of a Locker's Do its own Do of the key, with the ctx of
// that work, is ErrAlreadyHeld.
//
// # What happens to the connection
//
// The caller's ctx never reaches the driver while a lock is at stake, since a
// driver whose context ends in the middle of a statement may leave the lock behind.
// Once ctx has ended, a call waits a second for the answer that is under way and
// undoes what it granted; the connection stays usable. If no answer comes, the
// call gives the connection up and returns within two seconds of ctx's end.
//
// Rows of an earlier query are to be closed before a call: with rows open it fails, and the
// connection is not to be used any more.
//
// A connection of which it is not known what it holds is discarded, never pooled:
// its next use is [sql.ErrConnDone] or [driver.ErrBadConn], and the server frees its
// locks. On a link that swallows packets the server learns of that only by its own
// keepalive settings.
package sqlconn
