//go:build unix

package failover_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// A pointer is a driver.Connector whose new connections lead where it points, as those to a name in
// DNS do.
type pointer struct {
	driver driver.Driver
	to     atomic.Pointer[string]
}

func (p *pointer) Driver() driver.Driver { return p.driver }

func (p *pointer) Connect(context.Context) (driver.Conn, error) { return p.driver.Open(*p.to.Load()) }

func (p *pointer) point(n *harness.Node) { p.to.Store(new(n.URL())) }

// newPointer returns a pool that leads to n for now.
func newPointer(t *testing.T, d harness.Driver, n *harness.Node) (*sql.DB, *pointer) {
	p := &pointer{driver: d.Open(t, n.URL()).DB.Driver()}
	p.point(n)
	db := sql.OpenDB(p)
	t.Cleanup(func() { db.Close() })
	return db, p
}

// use takes a lock and releases it. It returns nil if that worked.
func use(l *locker.Locker, opts ...advisory.LockerOption) error {
	lock, ok, err := l.TryLock(context.Background(), harness.Key, opts...)
	if err == nil && !ok {
		err = advisory.ErrNotAcquired
	}
	if err != nil {
		return err
	}
	return lock.Unlock()
}

// comesBack waits until the Locker gives out locks.
func comesBack(t *testing.T, l *locker.Locker) {
	t.Helper()
	harness.Eventually(t, "the Locker gives out locks again", func() bool { return use(l) == nil })
}

// After a switchover the old primary is started again as it was, and the pool leads there. A Locker
// that has seen the new primary refuses it, and so does a new one of the same pool. One of a new pool
// cannot know.
func TestAnOlderTimelineIsRefused(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	r := harness.NewReplication(t, 1)
	old, next := r.Primary, r.Standbys[0]
	type client struct {
		name  string
		db    *sql.DB
		point func(*harness.Node)
		l     *locker.Locker
	}
	clients := []*client{{
		name: "pgx with a DSN of two hosts", db: harness.Drivers[1].Open(t, harness.DSN(t, old, next)).DB,
		point: func(*harness.Node) {}, // it finds the one that runs
	}}
	for _, d := range harness.Drivers[:2] {
		db, p := newPointer(t, d, old)
		clients = append(clients, &client{name: d.Name, db: db, point: p.point})
	}
	for _, c := range clients {
		c.l = locker.New(c.db)
		t.Cleanup(func() { c.l.Close() })
		if err := use(c.l); err != nil {
			t.Fatal(err)
		}
	}

	stop := func(n *harness.Node, mode string) {
		if err := n.Stop(mode); err != nil {
			t.Fatal(err)
		}
	}
	start := func(n *harness.Node) {
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
	}
	stop(old, "fast")
	next.Promote()
	for _, c := range clients {
		c.point(next)
		comesBack(t, c.l)
	}
	start(old) // as the primary that it was
	for _, c := range clients {
		c.point(old)
	}
	stop(next, "immediate")

	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			another, unchecked := locker.New(c.db), locker.New(c.db, locker.WithoutServerCheck())
			defer another.Close()
			defer unchecked.Close()
			harness.Eventually(t, "the session on the new primary is lost", func() bool { return !errors.Is(use(c.l), advisory.ErrLost) })
			for what, err := range map[string]error{
				"TryLock":           use(c.l),
				"Ping":              c.l.Ping(t.Context()),
				"another Locker":    use(another),
				"another's Lock":    harness.Second(another.Lock(t.Context(), harness.Key)),
				"another's Ping":    another.Ping(t.Context()),
				"without any check": use(unchecked),
			} {
				unsafe, ok := errors.AsType[*advisory.UnsafeServerError](err)
				if !ok || !errors.Is(err, advisory.ErrUnsafeServer) || unsafe.Reason != advisory.StalePrimary {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
	for _, d := range harness.Drivers[:2] {
		fresh, _ := newPointer(t, d, old)
		unknowing := locker.New(fresh)
		t.Cleanup(func() { unknowing.Close() })
		if err := use(unknowing); err != nil {
			t.Errorf("a Locker of a new pool, %s: %v", d.Name, err)
		}
	}

	stop(old, "fast")
	start(next)
	for _, c := range clients {
		c.point(next)
		comesBack(t, c.l)
	}
}

// Idle connections of the pool may still lead to an old primary that lives. A Locker that has seen the
// new one passes over them, within the same call.
func TestIdleConnectionsToAnOlderTimelineArePassedOver(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	r := harness.NewReplication(t, 1)
	old, next := r.Primary, r.Standbys[0]
	dbs, pools := map[string]*sql.DB{}, map[string]*pointer{}
	pinned := map[string][]*sql.Conn{}
	for _, d := range harness.Drivers[:2] {
		dbs[d.Name], pools[d.Name] = newPointer(t, d, old)
		dbs[d.Name].SetMaxIdleConns(10)
		for range 4 {
			conn, err := dbs[d.Name].Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			pinned[d.Name] = append(pinned[d.Name], conn)
		}
	}
	next.Promote()
	for _, d := range harness.Drivers[:2] {
		t.Run(d.Name, func(t *testing.T) {
			pools[d.Name].point(next)
			l := locker.New(dbs[d.Name], locker.WithApplicationName("passes over "+d.Name))
			defer l.Close()
			if err := use(l); err != nil {
				t.Fatal(err)
			}
			for _, conn := range pinned[d.Name] {
				conn.Close() // now it is idle
			}
			next.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'passes over " + d.Name + "'")
			for {
				lock, ok, err := l.TryLock(t.Context(), harness.Key)
				if errors.Is(err, advisory.ErrLost) {
					continue // the session that was terminated
				}
				if err != nil || !ok {
					t.Fatal(err)
				}
				if locks := harness.Ask[int](t, next.Watch, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"); locks != 1 {
					t.Errorf("there are %d locks on the new primary", locks)
				}
				if err := lock.Unlock(); err != nil {
					t.Error(err)
				}
				return
			}
		})
	}
}
