package advisory_test

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

func openInTurn(t testing.TB, urls ...string) *sql.DB {
	t.Helper()
	turn := &inTurn{}
	for _, u := range urls {
		c, err := pq.NewConnector(u)
		if err != nil {
			t.Fatal(err)
		}
		turn.connectors = append(turn.connectors, c)
	}
	db := sql.OpenDB(turn)
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
	lock, ok, err := l.TryLock(t.Context(), key)
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
	for _, how := range []pooling{
		{pgbouncer.Options{Mode: pgbouncer.Session, PoolSize: 8}, 0},
		{pgbouncer.Options{Mode: pgbouncer.Session, PoolSize: 8, RoundRobin: true}, 4},
	} {
		t.Run(how.String(), func(t *testing.T) {
			url := how.start(t, serverURL)
			for _, d := range drivers[:2] {
				for range poolerRounds(t) {
					p := d.open(t, url)
					takesLocks(t, p.DB)
					p.Close()
				}
			}
		})
	}
	t.Run("direct", func(t *testing.T) {
		for _, d := range allPools {
			for range poolerRounds(t) {
				p := d.open(t, serverURL)
				takesLocks(t, p.DB)
				p.Close()
				if p.below != nil {
					p.below.Close()
				}
			}
		}
	})
}

// The connections of a pool may go to servers that know nothing of each other's locks; here
// they go to two databases.
func TestLockerRefusesAPoolOfTwoServers(t *testing.T) {
	pgtest.Slow(t)
	db := openInTurn(t, pgtest.URL(t), pgtest.URL(t))
	l := locker.New(db)
	defer l.Close()
	err := l.Ping(t.Context())
	var unsafe *advisory.UnsafeServerError
	if !errors.As(err, &unsafe) || unsafe.Reason != advisory.NoExclusion {
		t.Error(err)
	}
	r, err := inspect.Check(t.Context(), openInTurn(t, pgtest.URL(t), pgtest.URL(t)))
	if err != nil {
		t.Fatal(err)
	}
	finds(t, r, "pooler", inspect.Unsafe, "same lock", "one server")
}

// Two connections may have roles that do not see each other's statements, while passwords are
// rotated, say; or the server may not show any.
func TestServerCheckWhereStatementsAreNotSeen(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t)
	database := unprivileged(t, server)
	other := unprivileged(t, server)
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
		for range poolerRounds(t) {
			db := openInTurn(t, database, u.String())
			takesLocks(t, db)
			db.Close()
		}
	})
	t.Run("another role is set", func(t *testing.T) {
		admin := drivers[0].open(t, server.URL())
		o, _ := url.Parse(other)
		u, _ := url.Parse(database)
		doSQL(t, admin, "GRANT "+o.User.Username()+" TO "+u.User.Username())
		db := openInTurn(t, database, withParameter(t, database, "options", "-c role="+o.User.Username()))
		takesLocks(t, db)
	})
	t.Run("track_activities is off", func(t *testing.T) {
		admin := drivers[0].open(t, server.URL())
		u, _ := url.Parse(other)
		doSQL(t, admin, "ALTER DATABASE "+strings.TrimPrefix(u.Path, "/")+" SET track_activities = off")
		for range poolerRounds(t) {
			p := drivers[0].open(t, other)
			takesLocks(t, p.DB)
			p.Close()
		}
		for _, how := range unsafePoolings() {
			t.Run(how.String(), func(t *testing.T) {
				u := how.start(t, other)
				rounds, refused := poolerRounds(t), 0
				for range rounds {
					p := drivers[0].open(t, u)
					l := locker.New(p.DB)
					_, _, err := l.TryLock(t.Context(), key)
					if errors.Is(err, advisory.ErrUnsafeServer) {
						refused++
					}
					l.Close()
					p.Close()
				}
				t.Logf("refused %d of %d", refused, rounds)
				if refused < rounds && how.clients == 0 {
					t.Errorf("only %d of %d were refused by a key that two connections were granted", refused, rounds)
				}
				held, _ := drivers[0].open(t, other).locks(t)
				t.Logf("%d locks are left", held)
			})
		}
	})
}

// Directly a check that cannot be made holds nobody up, and is made later; Ping insists on it.
func TestServerCheckInAFullPool(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	for _, d := range drivers[:2] {
		p := d.open(t, pgtest.URL(t))
		p.SetMaxOpenConns(2)
		busy := p.conn(t)
		events := &recorder{}
		l := p.locker(t, advisory.WithObserver(events))
		lock, ok := lockerTry(t, l, key)
		if !ok {
			t.Fatal("not granted")
		}
		told := false
		for _, e := range events.all() {
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
		for _, d := range drivers[:2] {
			p := d.open(t, url)
			p.SetMaxOpenConns(2)
			busy := p.conn(t)
			l := p.locker(t)
			ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
			var all sync.WaitGroup
			for what, call := range map[string]func() error{
				"TryLock": func() error { _, _, err := l.TryLock(ctx, key); return err },
				"Lock":    func() error { _, err := l.Lock(ctx, advisory.Int64(7)); return err },
			} {
				all.Go(func() {
					if err := call(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "could not be checked") {
						t.Errorf("%s, %s, while no check can be made: %v", d.name, what, err)
					}
				})
			}
			all.Wait()
			stop()
			if held, _ := drivers[0].open(t, serverURL).locks(t); held != 0 {
				t.Errorf("%s: %d locks are held", d.name, held)
			}
			waiting := make(chan error, 1)
			go func() {
				lock, ok, err := l.TryLock(t.Context(), key)
				if ok {
					err = lock.Unlock()
				}
				waiting <- err
			}()
			busy.Close()
			if err := <-waiting; url == safe && err != nil {
				t.Errorf("%s: TryLock, when there is a connection: %v", d.name, err)
			} else if url == fake {
				isPooler(t, d.name, err)
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
	lock, ok, err := l.TryLock(t.Context(), key)
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
	eventually(t, "the dead connection is given up", func() bool { return db.Stats().InUse == 1 })
	if err := l.Ping(t.Context()); err != nil {
		t.Errorf("Ping, with another connection: %v", err)
	}
}

func TestServerCheckIsMadeOncePerPool(t *testing.T) {
	eachDriverProxied(t, func(t *testing.T, p *pool, link *proxy.Proxy) {
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
	for _, d := range drivers[:2] {
		t.Run(d.name, func(t *testing.T) {
			p := d.open(t, server.URL())
			p.SetMaxIdleConns(5)
			die := func() {
				t.Helper()
				var conns []sqlconn.Conn
				for range 5 {
					conns = append(conns, p.conn(t))
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
			if r := checkServer(t, p); r.Err() != nil {
				t.Error(r.Err())
			}
		})
	}
}
