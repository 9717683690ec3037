// Package locker takes any number of PostgreSQL advisory locks at session level over a handful
// of connections of a pool, often one. The work does not run on the connection that holds the
// lock; its ctx ends when the lock is lost.
//
//	l := locker.New(db)
//	defer l.Close()
//	err := l.Do(ctx, advisory.Name("account", id), func(ctx context.Context) error {
//		return pay(ctx, id)
//	})
package locker
