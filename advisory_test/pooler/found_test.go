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

// Once the answer of a shared session shows a pooler, the pool counts as checked no more: neither a
// try on another session nor a new Locker is granted a lock.
func TestPoolThatLeadsToAPoolerLater(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	for _, d := range harness.Drivers[:2] {
		t.Run(d.Name, func(t *testing.T) {
			serverURL := pgtest.URL(t)
			how := harness.Pooling{Options: pgbouncer.Options{Mode: pgbouncer.Transaction, PoolSize: 3}, Clients: 0}
			poolerURL := how.Start(t, serverURL)
			p, link := d.Proxied(t, serverURL)
			direct, busy := harness.Drivers[0].Open(t, serverURL), harness.Drivers[0].Open(t, poolerURL)
			l := p.Locker(t)
			if err := l.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			u, err := url.Parse(poolerURL)
			if err != nil {
				t.Fatal(err)
			}
			link.Redirect(u.Host)
			link.CutAll()
			lock, ok := harness.LockerTry(t, l, harness.Key)
			if !ok {
				t.Fatal("not granted")
			}
			occupant(t, busy, holderPID(t, direct))
			_, ok, err = l.TryLock(t.Context(), advisory.Int64(2))
			harness.IsPooler(t, "TryLock", err)
			if ok {
				t.Error("TryLock was granted")
			}
			if cause := context.Cause(lock.Context()); !errors.Is(cause, advisory.ErrLost) {
				t.Errorf("the lock's Context: %v", cause)
			}
			harness.IsPooler(t, "Ping", l.Ping(t.Context()))
			harness.IsPooler(t, "Ping of a new Locker", p.Locker(t).Ping(t.Context()))
		})
	}
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
