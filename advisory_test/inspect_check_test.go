package advisory_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/inspect"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/pgbouncer"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/proxy"
)

func checkServer(t testing.TB, p *pool) *inspect.Report {
	t.Helper()
	r, err := inspect.Check(t.Context(), p.DB)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// finds fails the test unless the report has that verdict on the subject, with all of the
// words in its value or advice.
func finds(t testing.TB, r *inspect.Report, subject string, v inspect.Verdict, words ...string) {
	t.Helper()
	f, ok := r.Finding(subject)
	if !ok || f.Verdict != v {
		t.Errorf("%s: want %v: %v", subject, v, f)
	}
	for _, w := range words {
		if !strings.Contains(f.String(), w) {
			t.Errorf("%s: nothing of %q: %v", subject, w, f)
		}
	}
	if f.Verdict != inspect.OK && f.Advice == "" {
		t.Errorf("%s: no advice: %v", subject, f)
	}
}

func TestCheckOfAFitServer(t *testing.T) {
	for _, d := range allPools {
		t.Run(d.name, func(t *testing.T) {
			p := d.open(t, pgtest.URL(t))
			r := checkServer(t, p)
			t.Logf("\n%v", r)
			if err := r.Err(); err != nil {
				t.Error(err)
			}
			words := []string{"no proxy"}
			if d.pgxpool {
				words = nil
			}
			finds(t, r, "pooler", inspect.OK, words...)
			finds(t, r, "PostgreSQL", inspect.OK, "PostgreSQL 1")
			finds(t, r, "version", inspect.OK)
			finds(t, r, "recovery", inspect.OK)
			finds(t, r, "lock table", inspect.OK, "room for")
			finds(t, r, "idle_session_timeout", inspect.OK)
			finds(t, r, "track_activities", inspect.OK)
			finds(t, r, "pool", inspect.OK)
			p.noLocks(t)
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
	p := drivers[0].open(t, databaseURL)
	database := ask[string](t, p, "SELECT current_database()")
	doSQL(t, p, "ALTER DATABASE "+database+" SET idle_in_transaction_session_timeout = '90s'")
	doSQL(t, p, "ALTER DATABASE "+database+" SET statement_timeout = '5s'")
	doSQL(t, p, "ALTER DATABASE "+database+" SET track_activities = off")
	for _, d := range drivers[:2] {
		r := checkServer(t, d.open(t, databaseURL))
		finds(t, r, "idle_in_transaction_session_timeout", inspect.Warning, "1m30s", "set for the database", "ALTER ROLE")
		finds(t, r, "statement_timeout", inspect.OK, "5s", "set for the database")
		finds(t, r, "track_activities", inspect.Warning, "off")
		finds(t, r, "pooler", inspect.Warning, "track_activities")
		if r.Err() != nil || r.Verdict() != inspect.Warning {
			t.Errorf("%v, %v", r.Err(), r.Verdict())
		}
	}
	if ask[int](t, p, "SELECT current_setting('server_version_num')::int") < 140000 {
		return
	}
	r := checkServer(t, drivers[0].open(t, withParameter(t, databaseURL, "idle_session_timeout", "60000")))
	finds(t, r, "idle_session_timeout", inspect.Warning, "1m0s", "connection string")
}

func TestCheckTellsForHowLongAVanishedClientKeepsItsLock(t *testing.T) {
	databaseURL := pgtest.URL(t)
	p := drivers[0].open(t, databaseURL)
	if !ask[bool](t, p, "SELECT inet_client_addr() IS NOT NULL") {
		finds(t, checkServer(t, p), "vanished client", inspect.OK, "Unix socket")
		t.Skip("the server is not reached over TCP")
	}
	finds(t, checkServer(t, p), "vanished client", inspect.Warning, "tcp_user_timeout")
	with := func(settings ...string) *pool {
		u := databaseURL
		for i, name := range []string{"tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout"} {
			u = withParameter(t, u, name, settings[i])
		}
		return drivers[0].open(t, u)
	}
	finds(t, checkServer(t, with("5", "2", "2", "0")), "vanished client", inspect.Warning, "keeps its lock for 9s", "until the server's system stops sending")
	if ask[string](t, with("5", "2", "2", "9000"), "SELECT setting FROM pg_settings WHERE name = 'tcp_user_timeout'") != "9000" {
		t.Skip("the server's platform has no tcp_user_timeout")
	}
	finds(t, checkServer(t, with("5", "2", "2", "9000")), "vanished client", inspect.OK, "keeps its lock for 9s, or 9s if")
	finds(t, checkServer(t, with("5", "4", "1", "10000")), "vanished client", inspect.OK, "keeps its lock for 13s, or 10s if")
	finds(t, checkServer(t, with("500", "4", "1", "10000")), "vanished client", inspect.Warning, "keeps its lock for 8m24s")
	socket := pgtest.SharedServer(t).SocketURL()
	if socket != "" {
		finds(t, checkServer(t, drivers[0].open(t, socket)), "vanished client", inspect.OK, "Unix socket")
	}
}

func TestCheckTellsOfAFullLockTable(t *testing.T) {
	server := pgtest.NewServer(t, "max_locks_per_transaction=10", "max_connections=20")
	p := drivers[0].open(t, server.URL())
	finds(t, checkServer(t, p), "lock table", inspect.OK, "of 200 in use")
	conn := p.conn(t)
	doSQL(t, conn, "SELECT pg_advisory_lock(k) FROM generate_series(1, 120) k")
	finds(t, checkServer(t, p), "lock table", inspect.Warning, "of 200 in use", "max_locks_per_transaction")
}

func TestCheckOfAHotStandby(t *testing.T) {
	pgtest.Slow(t)
	server := standby(t)
	for _, d := range drivers[:2] {
		r := checkServer(t, d.open(t, server.URL()))
		finds(t, r, "recovery", inspect.Unsafe, "primary")
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
	for _, how := range unsafePoolings() {
		t.Run(how.String(), func(t *testing.T) {
			u := how.start(t, serverURL)
			for _, d := range drivers[:2] {
				for range poolerRounds(t) {
					p := d.open(t, u)
					r := checkServer(t, p)
					p.Close()
					finds(t, r, "pooler", inspect.Unsafe, "xact")
					isPooler(t, d.name, r.Err())
				}
			}
			if held, _ := drivers[0].open(t, serverURL).locks(t); held != 0 {
				t.Errorf("%d locks are left", held)
			}
		})
	}
	t.Run(pgbouncer.Session, func(t *testing.T) {
		u := pgbouncer.New(t, serverURL, pgbouncer.Options{Mode: pgbouncer.Session})
		for _, d := range drivers[:2] {
			for range poolerRounds(t) {
				p := d.open(t, u)
				r := checkServer(t, p)
				p.Close()
				finds(t, r, "pooler", inspect.Warning, "session mode", "tcp_keepidle")
				finds(t, r, "vanished client", inspect.Warning, "proxy")
				if err := r.Err(); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

func TestCheckNeedsTwoConnections(t *testing.T) {
	p := drivers[0].open(t, pgtest.URL(t))
	p.SetMaxOpenConns(1)
	r := checkServer(t, p)
	finds(t, r, "pooler", inspect.Warning, "not found out", "in use")
	finds(t, r, "pool", inspect.Warning, "MaxOpenConns is 1")
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
	lag := watchLag(t)
	atOnce(t, func(all *together) {
		for _, d := range drivers[:2] {
			for _, at := range []string{"", "pg_stat_activity", "pg_try_advisory_lock", "version()", "pg_settings"} {
				all.run(d.name+" "+at, func(t *testing.T) {
					link := proxy.New(t, u.Host)
					p := d.open(t, link.URL(serverURL))
					t.Cleanup(link.Thaw) // before the pool is closed
					link.FreezeOn(func(m proxy.Message) bool { return m.Direction == proxy.Up && strings.Contains(m.Text, at) })
					ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
					defer cancel()
					start := time.Now()
					r, err := inspect.Check(ctx, p.DB)
					lag.inTime(t, time.Since(start), 2300*time.Millisecond+patience/10)
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
