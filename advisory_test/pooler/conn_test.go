package pooler_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/adapt"
	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/pgbouncer"
	"github.com/pgadvisory/pgadvisory/locker"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// No call of package sqlconn, nor goose's shape of one, takes a fake lock without an error.
func TestConnectionsRefuseAPoolerInTransactionMode(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	serverURL := pgtest.URL(t)
	for _, how := range harness.UnsafePoolings() {
		t.Run(how.String(), func(t *testing.T) {
			url := how.Start(t, serverURL)
			for _, d := range harness.Drivers[:2] {
				rounds := harness.PoolerRounds(t)
				missed := map[string]int{}
				for range rounds {
					p := d.Open(t, url)
					for what, call := range connCalls(p) {
						if err := call(); !errors.Is(err, advisory.ErrUnsafeServer) {
							missed[what]++
							t.Errorf("%s: %s: %v", d.Name, what, err)
						}
					}
					p.Close()
				}
				t.Logf("%s: missed of %d each: %v", d.Name, rounds, missed)
			}
			if held, _ := harness.Drivers[0].Open(t, serverURL).Locks(t); held != 0 {
				t.Errorf("%d locks are left on the pooler's sessions", held)
			}
		})
	}
}

// connCalls are the calls that take a lock on a connection, with its release.
func connCalls(p *harness.Pool, opts ...advisory.ConnOption) map[string]func() error {
	ctx := context.Background()
	onConn := func(lock, unlock func(conn *sql.Conn) error) func() error {
		return func() error {
			conn, err := p.DB.Conn(ctx)
			if err != nil {
				return err
			}
			defer conn.Close()
			if err := lock(conn); err != nil {
				return err
			}
			return unlock(conn)
		}
	}
	release := func(conn *sql.Conn) error { return sqlconn.Unlock(ctx, conn, harness.Key) }
	goose := adapt.Goose(harness.Key, opts...)
	return map[string]func() error{
		"TryLock": onConn(func(conn *sql.Conn) error {
			ok, err := sqlconn.TryLock(ctx, conn, harness.Key, opts...)
			if !ok && err == nil {
				err = errors.New("not granted")
			}
			return err
		}, release),
		"Lock": onConn(func(conn *sql.Conn) error { return sqlconn.Lock(ctx, conn, harness.Key, opts...) }, release),
		"SessionLock": onConn(func(conn *sql.Conn) error { return goose.SessionLock(ctx, conn) },
			func(conn *sql.Conn) error { return goose.SessionUnlock(ctx, conn) }),
		"Do": func() error {
			return sqlconn.Do(ctx, p.DB.Conn, harness.Key, func(context.Context, *sql.Conn) error { return nil }, opts...)
		},
		"TryDo": func() error {
			ran, err := sqlconn.TryDo(ctx, p.DB.Conn, harness.Key, func(context.Context, *sql.Conn) error { return nil }, opts...)
			if !ran && err == nil {
				err = errors.New("not granted")
			}
			return err
		},
	}
}

// Nothing is refused where locks are real: directly, and in session mode by Do and TryDo, which
// check the pool, and by the others with SessionPooler or after such a check.
func TestConnectionsRaiseNoFalseAlarm(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	serverURL := pgtest.URL(t)
	work := func(t *testing.T, p *harness.Pool, names []string, opts ...advisory.ConnOption) {
		t.Helper()
		for _, what := range names {
			if err := connCalls(p, opts...)[what](); err != nil {
				t.Errorf("%s: %s: %v", p.By.Name, what, err)
			}
		}
	}
	all := []string{"TryLock", "Lock", "SessionLock", "Do", "TryDo"}
	for _, how := range []harness.Pooling{
		{Options: pgbouncer.Options{Mode: pgbouncer.Session, PoolSize: 8}, Clients: 0},
		{Options: pgbouncer.Options{Mode: pgbouncer.Session, PoolSize: 20, RoundRobin: true}, Clients: 4},
	} {
		t.Run(how.String(), func(t *testing.T) {
			url := how.Start(t, serverURL)
			for _, d := range harness.Drivers[:2] {
				for range harness.PoolerRounds(t) {
					p := d.Open(t, url)
					work(t, p, all, sqlconn.SessionPooler())
					work(t, p, []string{"Do", "TryDo"})
					work(t, p, all) // the pool was checked
					p.Close()
					p = d.Open(t, url)
					work(t, p, []string{"TryDo"})
					p.Close()
				}
			}
		})
	}
	t.Run("direct", func(t *testing.T) {
		for _, d := range harness.AllPools {
			for range harness.PoolerRounds(t) {
				p := d.Open(t, serverURL)
				p.SetMaxOpenConns(1)
				work(t, p, all)
				p.Close()
				if p.Below != nil {
					p.Below.Close()
				}
			}
		}
	})
}

// A wrapper around a driver does not hide the pid.
type wrappedConnector struct {
	driver sqldriver.Driver
	url    string
}

type wrappedConn struct {
	inner sqldriver.Conn // which is not embedded, nor exported
}

func (c wrappedConnector) Driver() sqldriver.Driver { return c.driver }

func (c wrappedConnector) Connect(context.Context) (sqldriver.Conn, error) {
	conn, err := c.driver.Open(c.url)
	return &wrappedConn{conn}, err
}

func (c *wrappedConn) Prepare(q string) (sqldriver.Stmt, error) { return c.inner.Prepare(q) }
func (c *wrappedConn) Close() error                             { return c.inner.Close() }
func (c *wrappedConn) Begin() (sqldriver.Tx, error)             { return nil, errors.ErrUnsupported }

func (c *wrappedConn) ExecContext(ctx context.Context, q string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	return c.inner.(sqldriver.ExecerContext).ExecContext(ctx, q, args)
}

func (c *wrappedConn) QueryContext(ctx context.Context, q string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	return c.inner.(sqldriver.QueryerContext).QueryContext(ctx, q, args)
}

func TestConnectionsThroughAWrapperRefuseAPooler(t *testing.T) {
	serverURL := pgtest.URL(t)
	url := pgbouncer.New(t, serverURL, pgbouncer.Options{Mode: pgbouncer.Transaction, PoolSize: 2})
	for _, d := range harness.Drivers[:2] {
		for _, to := range []string{serverURL, url} {
			db := sql.OpenDB(wrappedConnector{d.Open(t, to).Driver(), to})
			p := &harness.Pool{DB: db, By: d, Url: serverURL}
			for what, call := range connCalls(p) {
				if err := call(); errors.Is(err, advisory.ErrUnsafeServer) != (to == url) || to != url && err != nil {
					t.Errorf("%s, proxied %v: %s: %v", d.Name, to == url, what, err)
				}
			}
			db.Close()
		}
	}
}

// Each function that grants what another session holds is found.
func TestServerCheckTriesEveryFunction(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t)
	admin := harness.Drivers[0].Open(t, server.URL())
	admin.SetMaxOpenConns(1)
	harness.DoSQL(t, admin, "SET allow_system_table_mods = on")
	check := func(t *testing.T) error {
		p := harness.Drivers[0].Open(t, server.URL())
		defer p.Close()
		l := locker.New(p.DB)
		defer l.Close()
		return l.Ping(t.Context())
	}
	for _, args := range []string{"bigint", "int, int"} {
		for _, fn := range []string{
			"pg_try_advisory_lock", "pg_try_advisory_lock_shared", "pg_try_advisory_xact_lock", "pg_try_advisory_xact_lock_shared",
			"pg_advisory_lock", "pg_advisory_lock_shared",
		} {
			t.Run(fn+"("+args+")", func(t *testing.T) {
				result, body := "boolean", "SELECT true"
				if !strings.Contains(fn, "try") {
					result, body = "void", "SELECT"
				}
				name := "pg_catalog." + fn + "(" + args + ")"
				harness.DoSQL(t, admin, "ALTER FUNCTION "+name+" RENAME TO real_one")
				harness.DoSQL(t, admin, "CREATE FUNCTION "+name+" RETURNS "+result+" LANGUAGE sql AS '"+body+"'")
				var unsafe *advisory.UnsafeServerError
				if err := check(t); !errors.As(err, &unsafe) || unsafe.Reason != advisory.NoExclusion {
					t.Errorf("Ping: %v", err)
				}
				harness.DoSQL(t, admin, "DROP FUNCTION "+name)
				harness.DoSQL(t, admin, "ALTER FUNCTION pg_catalog.real_one("+args+") RENAME TO "+fn)
				if err := check(t); err != nil {
					t.Errorf("Ping, with the real function: %v", err)
				}
			})
		}
	}
	admin.NoLocks(t)
}
