package pooler_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/pgbouncer"
	"github.com/pgadvisory/pgadvisory/internal/pooler"
	"github.com/pgadvisory/pgadvisory/locker"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// A pool that was checked on a direct link is checked again once it leads to a pooler: nobody is granted
// a lock there.
func TestPoolThatLeadsToAPoolerLater(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	for _, d := range harness.Drivers[:2] {
		t.Run(d.Name+"/a Locker", func(t *testing.T) {
			m := movedToAPooler(t, d)
			_, ok, err := m.l.TryLock(t.Context(), harness.Key)
			harness.IsPooler(t, "TryLock", err)
			if ok {
				t.Error("TryLock was granted")
			}
			harness.IsPooler(t, "Ping of a new Locker", m.Locker(t).Ping(t.Context()))
		})
		t.Run(d.Name+"/a connection", func(t *testing.T) {
			conn := movedToAPooler(t, d).NewConn(t)
			_, err := sqlconn.TryLock(t.Context(), conn, harness.Key)
			harness.IsPooler(t, "TryLock", err)
		})
	}
}

// A Locker that checks nothing finds a pooler by the first answer of another session. It then ends all
// its sessions, and the pool counts as checked no more.
func TestAnswerOfAnotherSession(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	keys := []advisory.Key{advisory.Int64(2), advisory.Int64(3)}
	for name, try := range map[string]func(ctx context.Context, l *locker.Locker) (advisory.Lock, bool, error){
		"TryLock": func(ctx context.Context, l *locker.Locker) (advisory.Lock, bool, error) {
			return l.TryLock(ctx, keys[0])
		},
		"TryLockAny": func(ctx context.Context, l *locker.Locker) (advisory.Lock, bool, error) {
			return l.TryLockAny(ctx, keys)
		},
		"Semaphore": func(ctx context.Context, l *locker.Locker) (advisory.Lock, bool, error) {
			return l.Semaphore(keys[0], 2).TryAcquire(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := movedToAPooler(t, harness.Drivers[0])
			l := m.Locker(t, locker.WithoutServerCheck())
			lock, ok := harness.LockerTry(t, l, harness.Key)
			if !ok {
				t.Fatal("not granted")
			}
			occupant(t, m.busy, holderPID(t, m.direct))
			_, ok, err := try(t.Context(), l)
			harness.IsPooler(t, "the try", err)
			if ok {
				t.Error("it was granted")
			}
			if cause := context.Cause(lock.Context()); !errors.Is(cause, advisory.ErrLost) {
				t.Errorf("the lock's Context: %v", cause)
			}
			if pooler.Known(m.DB, pooler.Direct) {
				t.Error("the pool counts as checked")
			}
		})
	}
}

// moved is a pool that was checked on a direct link, and leads to a pooler now.
type moved struct {
	*harness.Pool
	l            *locker.Locker // which made the check
	direct, busy *harness.Pool  // busy leads to the pooler
}

func movedToAPooler(t *testing.T, d harness.Driver) moved {
	t.Helper()
	serverURL := pgtest.URL(t)
	how := harness.Pooling{Options: pgbouncer.Options{Mode: pgbouncer.Transaction, PoolSize: 3}, Clients: 0}
	poolerURL := how.Start(t, serverURL)
	u, err := url.Parse(poolerURL)
	if err != nil {
		t.Fatal(err)
	}
	p, link := d.Proxied(t, serverURL)
	m := moved{p, p.Locker(t), harness.Drivers[0].Open(t, serverURL), harness.Drivers[0].Open(t, poolerURL)}
	if err := m.l.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	link.Redirect(u.Host)
	link.CutAll()
	p.SetMaxIdleConns(0) // which are dead
	return m
}

// A late check that finds that locks do not exclude takes the locks of all sessions. Nobody else is
// granted them while the work under them goes on.
func TestLateServerCheckEndsAllSessions(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	one, two := pgtest.URL(t), pgtest.URL(t)
	turn := connectInTurn(t, append(slices.Repeat([]string{one}, 50), two)...)
	db := sql.OpenDB(turn)
	defer db.Close()
	l := locker.New(db)
	defer l.Close()
	front, ok := harness.LockerTry(t, l, advisory.Int64(1))
	if !ok {
		t.Fatal("not granted")
	}
	other := harness.Drivers[0].Open(t, one).NewConn(t)
	harness.TryLock(t, other, harness.Key)
	release := time.AfterFunc(500*time.Millisecond, func() { sqlconn.Unlock(context.Background(), other, harness.Key) })
	defer release.Stop()
	won, err := l.Lock(t.Context(), harness.Key)
	if err != nil {
		t.Fatal(err)
	}
	if n := l.Stats().Sessions; n < 2 {
		t.Fatalf("%d sessions: the wait had none of its own", n)
	}
	db.SetMaxIdleConns(0)
	turn.next.Store(50)
	pooler.Forget(db) // as if the pool had been full until now
	var unsafe *advisory.UnsafeServerError
	if err := l.Ping(t.Context()); !errors.As(err, &unsafe) || unsafe.Reason != advisory.NoExclusion {
		t.Errorf("Ping: %v", err)
	}
	for _, lock := range []advisory.Lock{front, won} {
		if cause := context.Cause(lock.Context()); !errors.Is(cause, advisory.ErrLost) || !errors.Is(cause, advisory.ErrUnsafeServer) {
			t.Errorf("the lock of %v: %v", lock.Key(), cause)
		}
		if ok, err := sqlconn.TryLock(t.Context(), other, lock.Key()); ok || err != nil {
			t.Errorf("another's TryLock of %v before Unlock: %v, %v", lock.Key(), ok, err)
		}
		lock.Unlock()
		harness.Eventually(t, "it is free after Unlock", func() bool {
			ok, err := sqlconn.TryLock(t.Context(), other, lock.Key())
			return ok && err == nil
		})
	}
}
