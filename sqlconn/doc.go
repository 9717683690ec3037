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
// # What happens to the connection
//
// The caller's ctx never reaches the driver while a lock is at stake, since a
// driver whose context ends in the middle of a statement may leave the lock behind.
// Once ctx has ended, a call waits a second for the answer that is under way and
// undoes what it granted; the connection stays usable. If no answer comes, the
// call gives the connection up and returns within two seconds of ctx's end.
//
// A connection of which it is not known what it holds is discarded, never pooled:
// its next use is [sql.ErrConnDone] or [driver.ErrBadConn], and the server frees its
// locks. On a link that swallows packets the server learns of that only by its own
// keepalive settings.
package sqlconn
