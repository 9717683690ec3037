package locker_test

import (
	"context"
	"errors"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/locker"
)

// callsThatSucceed are the calls of a Locker, on a key that is free.
var callsThatSucceed = map[string]func(ctx context.Context, l *locker.Locker, k advisory.Key) (granted bool, err error){
	"TryLock": func(ctx context.Context, l *locker.Locker, k advisory.Key) (bool, error) {
		lock, ok, err := l.TryLock(ctx, k)
		lock.Unlock()
		return ok, err
	},
	"Lock": func(ctx context.Context, l *locker.Locker, k advisory.Key) (bool, error) {
		lock, err := l.Lock(ctx, k)
		lock.Unlock()
		return err == nil, err
	},
	"Lock, MaxWait(0)": func(ctx context.Context, l *locker.Locker, k advisory.Key) (bool, error) {
		lock, err := l.Lock(ctx, k, advisory.MaxWait(0))
		lock.Unlock()
		return err == nil, err
	},
	"TryDo": func(ctx context.Context, l *locker.Locker, k advisory.Key) (bool, error) {
		return l.TryDo(ctx, k, func(context.Context) error { return nil })
	},
	"Do": func(ctx context.Context, l *locker.Locker, k advisory.Key) (ran bool, err error) {
		err = l.Do(ctx, k, func(context.Context) error { ran = true; return nil })
		return ran, err
	},
	"TryLockAll": func(ctx context.Context, l *locker.Locker, k advisory.Key) (bool, error) {
		locks, ok, err := l.TryLockAll(ctx, []advisory.Key{k, advisory.Name(k.String(), "more")})
		locks.Unlock()
		return ok, err
	},
	"LockAll": func(ctx context.Context, l *locker.Locker, k advisory.Key) (bool, error) {
		locks, err := l.LockAll(ctx, []advisory.Key{k, advisory.Name(k.String(), "more")})
		locks.Unlock()
		return err == nil, err
	},
	"TryLockAny": func(ctx context.Context, l *locker.Locker, k advisory.Key) (bool, error) {
		lock, ok, err := l.TryLockAny(ctx, []advisory.Key{k, advisory.Name(k.String(), "more")})
		lock.Unlock()
		return ok, err
	},
	"LockAny": func(ctx context.Context, l *locker.Locker, k advisory.Key) (bool, error) {
		lock, err := l.LockAny(ctx, []advisory.Key{k, advisory.Name(k.String(), "more")})
		lock.Unlock()
		return err == nil, err
	},
	"Semaphore.TryDo": func(ctx context.Context, l *locker.Locker, k advisory.Key) (bool, error) {
		return l.Semaphore(k, 3).TryDo(ctx, func(context.Context) error { return nil })
	},
	"Semaphore.Do": func(ctx context.Context, l *locker.Locker, k advisory.Key) (ran bool, err error) {
		err = l.Semaphore(k, 3).Do(ctx, func(context.Context) error { ran = true; return nil })
		return ran, err
	},
	"Lead": func(ctx context.Context, l *locker.Locker, k advisory.Key) (ran bool, err error) {
		err = l.Lead(ctx, k, func(context.Context) error { ran = true; return nil })
		return ran, err
	},
	"Ping": func(ctx context.Context, l *locker.Locker, k advisory.Key) (bool, error) {
		err := l.Ping(ctx)
		return err == nil, err
	},
}

// The server ends the Locker's session, and whatever else is connected. A call that comes at
// once, on a key that was not held, opens another session. Only the lock that was held is lost.
func TestCallsRightAfterTheSessionWasEnded(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		admin := p.By.Open(t, p.Url).NewConn(t)
		const others = " FROM pg_stat_activity a WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()"
		for name, call := range callsThatSucceed {
			for _, all := range []bool{false, true} {
				l := locker.New(p.DB)
				held, ok := harness.LockerTry(t, l, harness.Key)
				for !ok { // the server may still be ending the session of the round before
					held, ok = harness.LockerTry(t, l, harness.Key)
				}
				idle := p.NewConn(t)
				if err := idle.Close(); err != nil { // it goes back to the pool
					t.Fatal(err)
				}
				which := " AND EXISTS (SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.pid = a.pid)"
				if all {
					which = ""
				}
				if n := harness.Ask[int](t, admin, "SELECT count(pg_terminate_backend(a.pid))"+others+which); n == 0 {
					t.Fatal("nothing to end")
				}
				if ok, err := call(t.Context(), l, advisory.Int64(1)); !ok || err != nil {
					t.Errorf("%s, all connections ended: %v: %v, %v", name, all, ok, err)
				}
				if err := held.Unlock(); !errors.Is(err, advisory.ErrLost) {
					t.Errorf("%s: the lock that was held: %v", name, err)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	})
}
