package inspect_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/inspect"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/pgbouncer"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/proxy"
)

func TestCheckOfAFitServer(t *testing.T) {
	for _, d := range harness.AllPools {
		t.Run(d.Name, func(t *testing.T) {
			p := d.Open(t, pgtest.URL(t))
			r := harness.CheckServer(t, p)
			t.Logf("\n%v", r)
			if err := r.Err(); err != nil {
				t.Error(err)
			}
			words := []string{"no proxy"}
			if d.Pgxpool {
				words = nil
			}
			harness.Finds(t, r, "pooler", inspect.OK, words...)
			harness.Finds(t, r, "PostgreSQL", inspect.OK, "PostgreSQL 1")
			harness.Finds(t, r, "version", inspect.OK)
			harness.Finds(t, r, "recovery", inspect.OK)
			harness.Finds(t, r, "lock table", inspect.OK, "room for")
			harness.Finds(t, r, "idle_session_timeout", inspect.OK)
			harness.Finds(t, r, "track_activities", inspect.OK)
			harness.Finds(t, r, "pool", inspect.OK)
			p.NoLocks(t)
			if n := p.Stats().InUse; n != 0 {
				t.Errorf("%d connections are in use", n)
			}
			text, err := json.Marshal(r)
			if err != nil || !strings.Contains(string(text), `"verdict":"ok"`) {
				t.Errorf("%s, %v", text, err)
			}
		})
	}
}

func TestCheckTellsTimeouts(t *testing.T) {
	databaseURL := pgtest.URL(t)
	p := harness.Drivers[0].Open(t, databaseURL)
	database := harness.Ask[string](t, p, "SELECT current_database()")
	harness.DoSQL(t, p, "ALTER DATABASE "+database+" SET idle_in_transaction_session_timeout = '90s'")
	harness.DoSQL(t, p, "ALTER DATABASE "+database+" SET statement_timeout = '5s'")
	harness.DoSQL(t, p, "ALTER DATABASE "+database+" SET track_activities = off")
	for _, d := range harness.Drivers[:2] {
		r := harness.CheckServer(t, d.Open(t, databaseURL))
		harness.Finds(t, r, "idle_in_transaction_session_timeout", inspect.Warning, "1m30s", "set for the database", "ALTER ROLE")
		harness.Finds(t, r, "statement_timeout", inspect.OK, "5s", "set for the database")
		harness.Finds(t, r, "track_activities", inspect.Warning, "off")
		harness.Finds(t, r, "pooler", inspect.Warning, "track_activities")
		if r.Err() != nil || r.Verdict() != inspect.Warning {
			t.Errorf("%v, %v", r.Err(), r.Verdict())
		}
	}
	if harness.Ask[int](t, p, "SELECT current_setting('server_version_num')::int") < 140000 {
		return
	}
	r := harness.CheckServer(t, harness.Drivers[0].Open(t, harness.WithParameter(t, databaseURL, "idle_session_timeout", "60000")))
	harness.Finds(t, r, "idle_session_timeout", inspect.Warning, "1m0s", "connection string")
}

func TestCheckTellsForHowLongAVanishedClientKeepsItsLock(t *testing.T) {
	databaseURL := pgtest.URL(t)
	p := harness.Drivers[0].Open(t, databaseURL)
	if !harness.Ask[bool](t, p, "SELECT inet_client_addr() IS NOT NULL") {
		harness.Finds(t, harness.CheckServer(t, p), "vanished client", inspect.OK, "Unix socket")
		t.Skip("the server is not reached over TCP")
	}
	harness.Finds(t, harness.CheckServer(t, p), "vanished client", inspect.Warning, "tcp_user_timeout")
	with := func(settings ...string) *harness.Pool {
		u := databaseURL
		for i, name := range []string{"tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout"} {
			u = harness.WithParameter(t, u, name, settings[i])
		}
		return harness.Drivers[0].Open(t, u)
	}
	harness.Finds(t, harness.CheckServer(t, with("5", "2", "2", "0")), "vanished client", inspect.Warning, "keeps its lock for 9s", "until the server's system stops sending")
	if harness.Ask[string](t, with("5", "2", "2", "9000"), "SELECT setting FROM pg_settings WHERE name = 'tcp_user_timeout'") != "9000" {
		t.Skip("the server's platform has no tcp_user_timeout")
	}
	harness.Finds(t, harness.CheckServer(t, with("5", "2", "2", "9000")), "vanished client", inspect.OK, "keeps its lock for 9s, or 9s if")
	harness.Finds(t, harness.CheckServer(t, with("5", "4", "1", "10000")), "vanished client", inspect.OK, "keeps its lock for 13s, or 10s if")
	harness.Finds(t, harness.CheckServer(t, with("500", "4", "1", "10000")), "vanished client", inspect.Warning, "keeps its lock for 8m24s")
	socket := pgtest.SharedServer(t).SocketURL()
	if socket != "" {
		harness.Finds(t, harness.CheckServer(t, harness.Drivers[0].Open(t, socket)), "vanished client", inspect.OK, "Unix socket")
	}
}

func TestCheckTellsOfAFullLockTable(t *testing.T) {
	server := pgtest.NewServer(t, "max_locks_per_transaction=10", "max_connections=20")
	p := harness.Drivers[0].Open(t, server.URL())
	harness.Finds(t, harness.CheckServer(t, p), "lock table", inspect.OK, "of 200 in use")
	conn := p.NewConn(t)
	harness.DoSQL(t, conn, "SELECT pg_advisory_lock(k) FROM generate_series(1, 120) k")
	harness.Finds(t, harness.CheckServer(t, p), "lock table", inspect.Warning, "of 200 in use", "max_locks_per_transaction")
}

func TestCheckOfAHotStandby(t *testing.T) {
	pgtest.Slow(t)
	server := harness.Standby(t)
	for _, d := range harness.Drivers[:2] {
		r := harness.CheckServer(t, d.Open(t, server.URL()))
		harness.Finds(t, r, "recovery", inspect.Unsafe, "primary")
		var unsafe *advisory.UnsafeServerError
		if err := r.Err(); !errors.Is(err, advisory.ErrUnsafeServer) || !errors.As(err, &unsafe) || unsafe.Reason != advisory.Standby {
			t.Error(err)
		}
	}
}

func TestCheckTellsOfAPooler(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	serverURL := pgtest.URL(t)
	for _, how := range harness.UnsafePoolings() {
		t.Run(how.String(), func(t *testing.T) {
			u := how.Start(t, serverURL)
			for _, d := range harness.Drivers[:2] {
				for range harness.PoolerRounds(t) {
					p := d.Open(t, u)
					r := harness.CheckServer(t, p)
					p.Close()
					harness.Finds(t, r, "pooler", inspect.Unsafe, "xact")
					harness.IsPooler(t, d.Name, r.Err())
				}
			}
			if held, _ := harness.Drivers[0].Open(t, serverURL).Locks(t); held != 0 {
				t.Errorf("%d locks are left", held)
			}
		})
	}
	t.Run(pgbouncer.Session, func(t *testing.T) {
		u := pgbouncer.New(t, serverURL, pgbouncer.Options{Mode: pgbouncer.Session})
		for _, d := range harness.Drivers[:2] {
			for range harness.PoolerRounds(t) {
				p := d.Open(t, u)
				r := harness.CheckServer(t, p)
				p.Close()
				harness.Finds(t, r, "pooler", inspect.Warning, "session mode", "tcp_keepidle")
				harness.Finds(t, r, "vanished client", inspect.Warning, "proxy")
				if err := r.Err(); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

func TestCheckNeedsTwoConnections(t *testing.T) {
	p := harness.Drivers[0].Open(t, pgtest.URL(t))
	p.SetMaxOpenConns(1)
	r := harness.CheckServer(t, p)
	harness.Finds(t, r, "pooler", inspect.Warning, "not found out", "in use")
	harness.Finds(t, r, "pool", inspect.Warning, "MaxOpenConns is 1")
	if err := r.Err(); err != nil {
		t.Error(err)
	}
}

func TestCheckEndsInTime(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	serverURL := pgtest.URL(t)
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	lag := harness.WatchLag(t)
	harness.AtOnce(t, func(all *harness.Together) {
		for _, d := range harness.Drivers[:2] {
			for _, at := range []string{"", "pg_stat_activity", "pg_try_advisory_lock", "version()", "pg_settings"} {
				all.Start(d.Name+" "+at, func(t *testing.T) {
					link := proxy.New(t, u.Host)
					p := d.Open(t, link.URL(serverURL))
					t.Cleanup(link.Thaw) // before the pool is closed
					link.FreezeOn(func(m proxy.Message) bool { return m.Direction == proxy.Up && strings.Contains(m.Text, at) })
					ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
					defer cancel()
					start := time.Now()
					r, err := inspect.Check(ctx, p.DB)
					lag.InTime(t, time.Since(start), 2300*time.Millisecond+harness.Patience/10)
					if err == nil || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%v, %v", r, err)
					}
				})
			}
		}
	})
	if _, err := inspect.Check(t.Context(), nil); err == nil {
		t.Error("a nil *sql.DB is no error")
	}
}
