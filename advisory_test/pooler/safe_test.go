package pooler_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lib/pq"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/inspect"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/pgbouncer"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/proxy"
	"github.com/pgadvisory/pgadvisory/locker"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// inTurn connects with each URL in turn.
type inTurn struct {
	connectors []sqldriver.Connector
	next       atomic.Int64
}

func connectInTurn(t testing.TB, urls ...string) *inTurn {
	t.Helper()
	turn := &inTurn{}
	for _, u := range urls {
		c, err := pq.NewConnector(u)
		if err != nil {
			t.Fatal(err)
		}
		turn.connectors = append(turn.connectors, c)
	}
	return turn
}

func openInTurn(t testing.TB, urls ...string) *sql.DB {
	t.Helper()
	db := sql.OpenDB(connectInTurn(t, urls...))
	t.Cleanup(func() { db.Close() })
	return db
}

func (c *inTurn) Connect(ctx context.Context) (sqldriver.Conn, error) {
	i := c.next.Add(1) - 1
	return c.connectors[int(i)%len(c.connectors)].Connect(ctx)
}

func (c *inTurn) Driver() sqldriver.Driver { return c.connectors[0].Driver() }

// takesLocks fails the test unless a new Locker on the pool, with its check of the server,
// takes a lock and releases it.
func takesLocks(t testing.TB, db *sql.DB) {
	t.Helper()
	l := locker.New(db)
	defer l.Close()
	if err := l.Ping(t.Context()); err != nil {
		t.Errorf("Ping: %v", err)
		return
	}
	lock, ok, err := l.TryLock(t.Context(), harness.Key)
	if err != nil || !ok {
		t.Errorf("TryLock: %v, %v", ok, err)
		return
	}
	if err := lock.Unlock(); err != nil {
		t.Error(err)
	}
}

// No server is refused on which locks are real.
func TestServerCheckRaisesNoFalseAlarm(t *testing.T) {
	serverURL := pgtest.URL(t)
	for _, how := range []harness.Pooling{
		{Options: pgbouncer.Options{Mode: pgbouncer.Session, PoolSize: 8}, Clients: 0},
		{Options: pgbouncer.Options{Mode: pgbouncer.Session, PoolSize: 8, RoundRobin: true}, Clients: 4},
	} {
		t.Run(how.String(), func(t *testing.T) {
			url := how.Start(t, serverURL)
			for _, d := range harness.Drivers[:2] {
				for range harness.PoolerRounds(t) {
					p := d.Open(t, url)
					takesLocks(t, p.DB)
					p.Close()
				}
			}
		})
	}
	t.Run("direct", func(t *testing.T) {
		for _, d := range harness.AllPools {
			for range harness.PoolerRounds(t) {
				p := d.Open(t, serverURL)
				takesLocks(t, p.DB)
				p.Close()
				if p.Below != nil {
					p.Below.Close()
				}
			}
		}
	})
}

// The connections of a pool may go to servers that know nothing of each other's locks: here to two
// databases, and to two servers.
func TestLockerRefusesAPoolOfTwoServers(t *testing.T) {
	pgtest.Slow(t)
	for name, other := range map[string]string{
		"databases": pgtest.URL(t),
		"servers":   pgtest.NewServer(t).Database(t),
	} {
		t.Run(name, func(t *testing.T) {
			one := pgtest.URL(t)
			db := openInTurn(t, one, other)
			l := locker.New(db)
			defer l.Close()
			err := l.Ping(t.Context())
			var unsafe *advisory.UnsafeServerError
			if !errors.As(err, &unsafe) || unsafe.Reason != advisory.NoExclusion {
				t.Error(err)
			}
			r, err := inspect.Check(t.Context(), openInTurn(t, one, other))
			if err != nil {
				t.Fatal(err)
			}
			harness.Finds(t, r, "pooler", inspect.Unsafe, "same lock", "one server")
		})
	}
}

// Two connections may have roles that do not see each other's statements, while passwords are
// rotated, say; or the server may not show any.
func TestServerCheckWhereStatementsAreNotSeen(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t)
	database := harness.Unprivileged(t, server)
	other := harness.Unprivileged(t, server)
	t.Run("two roles", func(t *testing.T) {
		u, err := url.Parse(database)
		if err != nil {
			t.Fatal(err)
		}
		o, err := url.Parse(other)
		if err != nil {
			t.Fatal(err)
		}
		u.User = o.User
		for range harness.PoolerRounds(t) {
			db := openInTurn(t, database, u.String())
			takesLocks(t, db)
			db.Close()
		}
	})
	t.Run("another role is set", func(t *testing.T) {
		admin := harness.Drivers[0].Open(t, server.URL())
		o, _ := url.Parse(other)
		u, _ := url.Parse(database)
		harness.DoSQL(t, admin, "GRANT "+o.User.Username()+" TO "+u.User.Username())
		db := openInTurn(t, database, harness.WithParameter(t, database, "options", "-c role="+o.User.Username()))
		takesLocks(t, db)
	})
	t.Run("track_activities is off", func(t *testing.T) {
		admin := harness.Drivers[0].Open(t, server.URL())
		u, _ := url.Parse(other)
		harness.DoSQL(t, admin, "ALTER DATABASE "+strings.TrimPrefix(u.Path, "/")+" SET track_activities = off")
		for range harness.PoolerRounds(t) {
			p := harness.Drivers[0].Open(t, other)
			takesLocks(t, p.DB)
			p.Close()
		}
		for _, how := range harness.UnsafePoolings() {
			t.Run(how.String(), func(t *testing.T) {
				u := how.Start(t, other)
				rounds, refused := harness.PoolerRounds(t), 0
				for range rounds {
					p := harness.Drivers[0].Open(t, u)
					l := locker.New(p.DB)
					_, _, err := l.TryLock(t.Context(), harness.Key)
					if errors.Is(err, advisory.ErrUnsafeServer) {
						refused++
					}
					l.Close()
					p.Close()
				}
				t.Logf("refused %d of %d", refused, rounds)
				if refused < rounds && how.Clients == 0 {
					t.Errorf("only %d of %d were refused by a key that two connections were granted", refused, rounds)
				}
				held, _ := harness.Drivers[0].Open(t, other).Locks(t)
				t.Logf("%d locks are left", held)
			})
		}
	})
}

// Directly a check that cannot be made holds nobody up, and is made later; Ping insists on it.
func TestServerCheckInAFullPool(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	for _, d := range harness.Drivers[:2] {
		p := d.Open(t, pgtest.URL(t))
		p.SetMaxOpenConns(2)
		busy := p.NewConn(t)
		events := &harness.Recorder{}
		l := p.Locker(t, advisory.WithObserver(events))
		lock, ok := harness.LockerTry(t, l, harness.Key)
		if !ok {
			t.Fatal("not granted")
		}
		told := false
		for _, e := range events.All() {
			told = told || e.Kind == advisory.SessionOpened && e.Err != nil && strings.Contains(e.Err.Error(), "could not be checked")
		}
		if !told {
			t.Error("no event has an Err that says that the check was not made")
		}
		if err := l.Ping(t.Context()); err == nil || errors.Is(err, advisory.ErrUnsafeServer) || !strings.Contains(err.Error(), "connections of the pool are in use") {
			t.Errorf("Ping, while the pool is full: %v", err)
		}
		if lock.Context().Err() != nil {
			t.Errorf("the lock was lost: %v", context.Cause(lock.Context()))
		}
		busy.Close()
		if err := l.Ping(t.Context()); err != nil {
			t.Errorf("Ping, when there is a connection: %v", err)
		}
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
	}
}

// Behind a proxy no lock is given out before the check has succeeded. A caller whose ctx ends
// meanwhile gets why.
func TestNoLockBehindAProxyBeforeTheCheck(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	serverURL := pgtest.URL(t)
	safe := pgbouncer.New(t, serverURL, pgbouncer.Options{Mode: pgbouncer.Session})
	fake := pgbouncer.New(t, serverURL, pgbouncer.Options{Mode: pgbouncer.Transaction, PoolSize: 1})
	for _, url := range []string{safe, fake} {
		for _, d := range harness.Drivers[:2] {
			p := d.Open(t, url)
			p.SetMaxOpenConns(2)
			busy := p.NewConn(t)
			l := p.Locker(t)
			ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
			var all sync.WaitGroup
			for what, call := range map[string]func() error{
				"TryLock": func() error { _, _, err := l.TryLock(ctx, harness.Key); return err },
				"Lock":    func() error { _, err := l.Lock(ctx, advisory.Int64(7)); return err },
			} {
				all.Go(func() {
					if err := call(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "could not be checked") {
						t.Errorf("%s, %s, while no check can be made: %v", d.Name, what, err)
					}
				})
			}
			all.Wait()
			stop()
			if held, _ := harness.Drivers[0].Open(t, serverURL).Locks(t); held != 0 {
				t.Errorf("%s: %d locks are held", d.Name, held)
			}
			waiting := make(chan error, 1)
			go func() {
				lock, ok, err := l.TryLock(t.Context(), harness.Key)
				if ok {
					err = lock.Unlock()
				}
				waiting <- err
			}()
			busy.Close()
			if err := <-waiting; url == safe && err != nil {
				t.Errorf("%s: TryLock, when there is a connection: %v", d.Name, err)
			} else if url == fake {
				harness.IsPooler(t, d.Name, err)
			}
		}
	}
}

// A second connection that does not answer holds a Locker up for some seconds, and no
// longer. It is not given back to the pool.
func TestServerCheckOnADeadLink(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	serverURL := pgtest.URL(t)
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	link := proxy.New(t, u.Host)
	t.Cleanup(link.Thaw)
	db := openInTurn(t, serverURL, link.URL(serverURL), serverURL)
	dead := link.FreezeOn(func(m proxy.Message) bool {
		return m.Direction == proxy.Up && strings.Contains(m.Text, "pg_stat_activity")
	})
	l := locker.New(db)
	defer l.Close()
	lock, ok, err := l.TryLock(t.Context(), harness.Key)
	if err != nil || !ok {
		t.Fatalf("TryLock: %v, %v", ok, err)
	}
	select {
	case <-dead:
	default:
		t.Error("the link is alive")
	}
	if err := lock.Unlock(); err != nil {
		t.Error(err)
	}
	harness.Eventually(t, "the dead connection is given up", func() bool { return db.Stats().InUse == 1 })
	if err := l.Ping(t.Context()); err != nil {
		t.Errorf("Ping, with another connection: %v", err)
	}
}

func TestServerCheckIsMadeOncePerPool(t *testing.T) {
	harness.EachDriverProxied(t, func(t *testing.T, p *harness.Pool, link *proxy.Proxy) {
		looks := func() (n int) {
			for _, q := range link.Stats().Queries {
				if strings.Contains(q, "pg_stat_activity") {
					n++
				}
			}
			return n
		}
		for i, opts := range [][]locker.Option{{locker.WithoutServerCheck()}, {}, {}} {
			before := looks()
			l := locker.New(p.DB, opts...)
			if err := l.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.Close()
			if n := looks() - before; (n > 0) != (i == 1) {
				t.Errorf("Locker %d looked %d times", i, n)
			}
		}
	})
}

// Connections of the pool that died with a restart of the server do not keep a Locker, nor
// Check, from their work.
func TestDeadConnectionsInThePool(t *testing.T) {
	pgtest.Slow(t)
	server := pgtest.NewServer(t)
	for _, d := range harness.Drivers[:2] {
		t.Run(d.Name, func(t *testing.T) {
			p := d.Open(t, server.URL())
			p.SetMaxIdleConns(5)
			die := func() {
				t.Helper()
				var conns []sqlconn.Conn
				for range 5 {
					conns = append(conns, p.NewConn(t))
				}
				for _, c := range conns {
					c.Close()
				}
				if err := server.Restart(); err != nil {
					t.Fatal(err)
				}
				if n := p.Stats().Idle; n != 5 {
					t.Fatalf("%d idle connections", n)
				}
			}
			die()
			takesLocks(t, p.DB)
			die()
			if r := harness.CheckServer(t, p); r.Err() != nil {
				t.Error(r.Err())
			}
		})
	}
}
