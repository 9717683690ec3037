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

// Once an answer shows a pooler, the pool counts as checked no more: neither a try on another session
// nor a new Locker is granted a lock, and calls on a connection compare pids again.
func TestPoolThatLeadsToAPoolerLater(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	for _, d := range harness.Drivers[:2] {
		t.Run(d.Name+"/a Locker", func(t *testing.T) {
			m := movedToAPooler(t, d)
			lock, ok := harness.LockerTry(t, m.l, harness.Key)
			if !ok {
				t.Fatal("not granted")
			}
			occupant(t, m.busy, holderPID(t, m.direct))
			_, ok, err := m.l.TryLock(t.Context(), advisory.Int64(2))
			harness.IsPooler(t, "TryLock", err)
			if ok {
				t.Error("TryLock was granted")
			}
			if cause := context.Cause(lock.Context()); !errors.Is(cause, advisory.ErrLost) {
				t.Errorf("the lock's Context: %v", cause)
			}
			harness.IsPooler(t, "Ping", m.l.Ping(t.Context()))
			harness.IsPooler(t, "Ping of a new Locker", m.Locker(t).Ping(t.Context()))
		})
		t.Run(d.Name+"/a connection", func(t *testing.T) {
			m := movedToAPooler(t, d)
			conn := m.NewConn(t)
			harness.TryLock(t, conn, harness.Key)
			occupant(t, m.busy, holderPID(t, m.direct))
			if err := sqlconn.Unlock(t.Context(), conn, harness.Key); !errors.Is(err, advisory.ErrNotHeld) {
				t.Errorf("Unlock on another session: %v", err)
			}
			_, err := sqlconn.TryLock(t.Context(), conn, advisory.Int64(2))
			harness.IsPooler(t, "TryLock", err)
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

// A late check that finds that locks do not exclude takes the locks of all sessions.
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
	}
}
