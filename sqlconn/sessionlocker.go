package sqlconn

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// A Session is a lock in the shape that migration tools expect: goose's
// lock.SessionLocker, on a connection that the tool has pinned, and its lock.Locker, on
// a pool.
type Session struct {
	key  advisory.Key
	opts []advisory.SessionOption

	mu     sync.Mutex
	locker *Locker // between Lock and Unlock
	lock   advisory.Lock
}

// SessionLocker returns the lock of key for a migration tool. It waits until ctx ends, or
// as long as [advisory.MaxWait] says.
func SessionLocker(key advisory.Key, opts ...advisory.SessionOption) *Session {
	return &Session{key: key, opts: opts}
}

// SessionLock waits until conn holds the lock, as [Lock] does.
func (s *Session) SessionLock(ctx context.Context, conn *sql.Conn) error {
	return Lock(ctx, conn, s.key, s.opts...)
}

// SessionUnlock releases it, as [Unlock] does, also when ctx has ended.
func (s *Session) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	return Unlock(ctx, conn, s.key, s.opts...)
}

// Lock waits for the lock on a connection of its own, which it takes from db, as a
// [Locker] does.
func (s *Session) Lock(ctx context.Context, db *sql.DB) error {
	l := NewLocker(db)
	lock, err := l.Lock(ctx, s.key, s.opts...)
	if err != nil {
		l.Close()
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locker != nil {
		l.Close()
		return lockfn.Error("lock", s.key, lock.Mode(), fmt.Errorf("%w by this Session", advisory.ErrAlreadyHeld))
	}
	s.locker, s.lock = l, lock
	return nil
}

// Unlock releases what [Session.Lock] took. A lock that was lost meanwhile is
// [advisory.ErrLost].
func (s *Session) Unlock(context.Context, *sql.DB) error {
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
