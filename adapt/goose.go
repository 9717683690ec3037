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

// A GooseLocker is a lock in the shape that migration tools expect: goose's
// lock.SessionLocker, on a connection that the tool has pinned, and its lock.Locker, on
// a pool.
type GooseLocker struct {
	key  advisory.Key
	conn []advisory.ConnOption   // of SessionLock
	opts []advisory.LockerOption // of Lock

	mu     sync.Mutex
	locker *locker.Locker // between Lock and Unlock
	lock   advisory.Lock
}

// Goose returns the lock of key for a migration tool. It waits until ctx ends, or
// as long as [advisory.MaxWait] says. Options that fit a connection alone, such as
// [sqlconn.SessionPooler], are for SessionLock; a Locker checks the server by itself.
func Goose(key advisory.Key, opts ...advisory.ConnOption) *GooseLocker {
	g := &GooseLocker{key: key, conn: opts}
	for _, o := range opts {
		if o, ok := o.(advisory.LockerOption); ok || o == nil {
			g.opts = append(g.opts, o)
		}
	}
	return g
}

// SessionLock waits until conn holds the lock, as [sqlconn.Lock] does. Through a proxy it
// returns an [*advisory.UnsafeServerError], unless Goose was given [sqlconn.SessionPooler].
func (s *GooseLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	return sqlconn.Lock(ctx, conn, s.key, s.conn...)
}

// SessionUnlock releases it, as [sqlconn.Unlock] does, also when ctx has ended.
func (s *GooseLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	return sqlconn.Unlock(ctx, conn, s.key, s.conn...)
}

// Lock waits for the lock on a connection of its own, which it takes from db, as a
// [locker.Locker] does.
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

// Unlock releases what [GooseLocker.Lock] took. A lock that was lost meanwhile is
// [advisory.ErrLost].
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
