package conn_test

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/adapt"
	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/inspect"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// opening are the calls that take a connection from the pool by themselves. Others of inspect
// are one query of database/sql, which goes on to the next itself.
var opening = []struct {
	name string
	call func(ctx context.Context, p *harness.Pool) (ran bool, err error)
}{
	{"sqlconn.Do", func(ctx context.Context, p *harness.Pool) (ran bool, err error) {
		err = p.Do(ctx, harness.Key, func(context.Context, sqlconn.Conn) error { ran = true; return nil })
		return ran, err
	}},
	{"sqlconn.Do, plain wait", func(ctx context.Context, p *harness.Pool) (ran bool, err error) {
		err = p.Do(ctx, harness.Key, func(context.Context, sqlconn.Conn) error { ran = true; return nil }, sqlconn.PlainWait())
		return ran, err
	}},
	{"sqlconn.TryDo", func(ctx context.Context, p *harness.Pool) (bool, error) {
		return p.TryDo(ctx, harness.Key, func(context.Context, sqlconn.Conn) error { return nil })
	}},
	{"xact.Do", func(ctx context.Context, p *harness.Pool) (ran bool, err error) {
		err = p.TxDo(ctx, harness.Key, func(context.Context, xact.Tx) error { ran = true; return nil })
		return ran, err
	}},
	{"xact.TryDo", func(ctx context.Context, p *harness.Pool) (bool, error) {
		return p.TxTryDo(ctx, harness.Key, func(context.Context, xact.Tx) error { return nil })
	}},
	{"GooseLocker.Lock", func(ctx context.Context, p *harness.Pool) (bool, error) {
		g := adapt.Goose(harness.Key)
		if err := g.Lock(ctx, p.DB); err != nil {
			return false, err
		}
		return true, g.Unlock(ctx, p.DB)
	}},
	{"inspect.Check", func(ctx context.Context, p *harness.Pool) (bool, error) {
		_, err := inspect.Check(ctx, p.DB)
		return err == nil, err
	}},
}

// idle leaves n connections in the pool that have been used.
func idle(p *harness.Pool, t *testing.T, n int) {
	t.Helper()
	p.SetMaxIdleConns(n)
	conns := make([]*sql.Conn, n)
	for i := range conns {
		conn, err := p.DB.Conn(t.Context())
		if err == nil {
			_, err = conn.ExecContext(t.Context(), "SELECT 1")
		}
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = conn
	}
	for _, conn := range conns {
		conn.Close()
	}
	if got := p.Stats().Idle; got != n {
		t.Fatalf("%d connections are idle, not %d", got, n)
	}
}

// The server was restarted while the pool was idle. A call that opens its own connection
// goes on to the next, as database/sql does.
func TestConnectionsThatDiedWhileIdle(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel() // on a server of its own
	const dead = 6
	server := pgtest.NewServer(t, "max_connections=300")
	type scene struct {
		what string
		*harness.Pool
		call func(context.Context, *harness.Pool) (bool, error)
	}
	var scenes []scene
	for _, d := range harness.Drivers {
		for _, o := range opening {
			p := d.Open(t, server.URL())
			idle(p, t, dead)
			scenes = append(scenes, scene{d.Name + ", " + o.name, p, o.call})
		}
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	for _, s := range scenes {
		failed := 0
		for range 2 * dead {
			ran, err := s.call(t.Context(), s.Pool)
			if err == nil && ran {
				continue
			}
			if failed++; failed == 1 {
				t.Logf("%s: %v, %v", s.what, ran, err)
			}
		}
		if failed > 0 {
			t.Errorf("%s: %d of %d calls failed, with %d dead connections", s.what, failed, 2*dead, dead)
		}
		s.Close()
	}
	harness.Drivers[0].Open(t, server.URL()).NoLocks(t)
}

// A connection of the caller's cannot be replaced. The error says what has become of it.
func TestDeadConnectionOfTheCallers(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		for what, call := range map[string]func(sqlconn.Conn) error{
			"TryLock": func(c sqlconn.Conn) error { return harness.Second(sqlconn.TryLock(t.Context(), c, harness.Key)) },
			"Lock":    func(c sqlconn.Conn) error { return sqlconn.Lock(t.Context(), c, harness.Key) },
			"plain":   func(c sqlconn.Conn) error { return sqlconn.Lock(t.Context(), c, harness.Key, sqlconn.PlainWait()) },
			"Goose": func(c sqlconn.Conn) error {
				if _, ok := c.(*sql.Conn); !ok {
					return sqlconn.Lock(t.Context(), c, harness.Key)
				}
				return adapt.Goose(harness.Key).SessionLock(t.Context(), c.(*sql.Conn))
			},
		} {
			conn := p.NewConn(t)
			pid, err := pidOf(t.Context(), conn)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.ExecContext(t.Context(), "SELECT pg_terminate_backend("+strconv.Itoa(pid)+")"); err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, "the session has ended", func() bool {
				return harness.Ask[int](t, p, "SELECT count(*) FROM pg_stat_activity WHERE pid = "+strconv.Itoa(pid)) == 0
			})
			err = call(conn)
			if err == nil || !strings.Contains(err.Error(), "the connection is gone, and holds nothing") {
				t.Errorf("%s: %v", what, err)
			}
			for _, wrong := range []error{advisory.ErrNotAcquired, advisory.ErrLost, advisory.ErrAlreadyHeld} {
				if errors.Is(err, wrong) {
					t.Errorf("%s: %v is %v", what, err, wrong)
				}
			}
			if err := conn.Close(); err != nil && !errors.Is(err, sql.ErrConnDone) {
				t.Logf("%s: Close: %v", what, err)
			}
		}
		p.NoLocks(t)
	})
}

// Within a second of their last use pgx does not ping connections that come out of the pool.
func TestConnectionsThatDiedJustNow(t *testing.T) {
	pgtest.Slow(t)
	const dead = 6
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		other := p.By.Open(t, p.Url)
		for _, o := range opening {
			p := p.By.Open(t, p.Url)
			idle(p, t, dead)
			if _, err := other.ExecContext(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"); err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, "the sessions have ended", func() bool {
				return harness.Ask[int](t, other, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'") == 0
			})
			failed := 0
			for range 2 * dead {
				ran, err := o.call(t.Context(), p)
				if err == nil && ran {
					continue
				}
				if failed++; failed == 1 {
					t.Logf("%s: %v, %v", o.name, ran, err)
				}
			}
			if failed > 0 {
				t.Errorf("%s: %d of %d calls failed, with %d dead connections", o.name, failed, 2*dead, dead)
			}
			p.Close()
		}
		other.NoLocks(t)
	})
}
