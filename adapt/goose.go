package adapt

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/locker"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// A GooseLocker has the methods that migration tools expect of a lock: those of goose's
// lock.SessionLocker, for a connection that the tool has pinned, and those of its lock.Locker, for a
// pool.
type GooseLocker struct {
	key  advisory.Key
	conn []advisory.ConnOption   // the options of SessionLock
	opts []advisory.LockerOption // the options of Lock

	mu     sync.Mutex
	locker *locker.Locker // set between Lock and Unlock
	lock   advisory.Lock
}

// Goose returns a lock of key for a migration tool. It waits until ctx ends, or for
// [advisory.MaxWait]. Options for connections only, such as [sqlconn.SessionPooler], apply to
// SessionLock. They have no effect on Lock, whose [locker.Locker] checks the server itself.
func Goose(key advisory.Key, opts ...advisory.ConnOption) *GooseLocker {
	g := &GooseLocker{key: key, conn: opts}
	for _, o := range opts {
		if o, ok := o.(advisory.LockerOption); ok || o == nil {
			g.opts = append(g.opts, o)
		}
	}
	return g
}

// SessionLock waits until conn holds the lock, and fails as [sqlconn.Lock] does. Through a proxy it
// returns an [*advisory.UnsafeServerError], unless Goose was given [sqlconn.SessionPooler].
func (s *GooseLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	return sqlconn.Lock(ctx, conn, s.key, s.conn...)
}

// SessionUnlock releases the lock of conn, even if ctx has ended. Its errors, and what happens to
// conn, are those of [sqlconn.Unlock].
func (s *GooseLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	return sqlconn.Unlock(ctx, conn, s.key, s.conn...)
}

// Lock waits for the lock on a connection of its own, which a [locker.Locker] takes from db. It fails
// with [advisory.ErrAlreadyHeld] if this GooseLocker holds the lock already.
func (s *GooseLocker) Lock(ctx context.Context, db *sql.DB) error {
	l := locker.New(db)
	lock, err := l.Lock(ctx, s.key, s.opts...)
	if err != nil {
		l.Close()
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locker != nil {
		l.Close()
		return lockfn.Error("lock", s.key, lock.Mode(), fmt.Errorf("%w by this GooseLocker", advisory.ErrAlreadyHeld))
	}
	s.locker, s.lock = l, lock
	return nil
}

// Unlock releases the lock that [GooseLocker.Lock] took, and closes its connection. It returns
// [advisory.ErrLost] if the lock was lost before, and [advisory.ErrNotHeld] if there is none.
func (s *GooseLocker) Unlock(context.Context, *sql.DB) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locker == nil {
		return lockfn.Error("unlock", s.key, advisory.Exclusive, advisory.ErrNotHeld)
	}
	err := s.lock.Unlock()
	s.locker.Close()
	s.locker, s.lock = nil, nil
	return err
}
