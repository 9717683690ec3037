package inspect_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/inspect"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

var _ = []inspect.DB{(*sql.DB)(nil), (*sql.Conn)(nil), (*sqlx.DB)(nil), (*sqlx.Conn)(nil)}

// as returns the URL with another user and application_name.
func as(t testing.TB, databaseURL string, user *url.Userinfo, application string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	if user != nil {
		u.User = user
	}
	q := u.Query()
	if application != "" {
		q.Set("application_name", application)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

func inspectLocks(t testing.TB, db inspect.DB) []inspect.Lock {
	t.Helper()
	locks, err := inspect.Locks(context.Background(), db)
	if err != nil {
		t.Fatal(err)
	}
	return locks
}

// blockOn has a session of the database wait for a key by hand, and returns its pid; the wait
// ends with the test.
func blockOn(t testing.TB, p *harness.Pool, key advisory.Key, m advisory.Mode) (pid int) {
	t.Helper()
	conn := p.NewConn(t)
	pid = harness.Ask[int](t, conn, "SELECT pg_backend_pid()")
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	function := "pg_advisory_lock"
	if m == advisory.Shared {
		function += "_shared"
	}
	go func() {
		defer close(done)
		conn.ExecContext(ctx, "SELECT "+function+"("+key.SQL()+")")
	}()
	t.Cleanup(func() { end(); <-done })
	watch := harness.Drivers[0].Open(t, p.Url)
	harness.Eventually(t, "it waits", func() bool {
		return harness.Ask[bool](t, watch, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pid = $1)", pid)
	})
	return pid
}

// Keys of both spaces and any sign are the ones that were locked.
func TestLocksListsEveryKeyAndMode(t *testing.T) {
	t.Parallel()
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		if locks := inspectLocks(t, p); len(locks) != 0 {
			t.Errorf("in an empty database: %v", locks)
		}
		conn := p.NewConn(t)
		pid := harness.Ask[int](t, conn, "SELECT pg_backend_pid()")
		want := map[advisory.HeldLock]bool{}
		for i, n := range []int64{0, 1, -1, 4820, -4820, 1 << 32, math.MinInt64, math.MaxInt64, math.MinInt32} {
			m := advisory.Mode(i % 2)
			want[advisory.HeldLock{Key: advisory.Int64(n), Mode: m}] = true
			want[advisory.HeldLock{Key: advisory.Pair(int32(n), int32(i)), Mode: m}] = true
		}
		want[advisory.HeldLock{Key: advisory.Pair(-1, -2), Mode: advisory.Shared}] = true
		want[advisory.HeldLock{Key: advisory.Pair(math.MinInt32, math.MaxInt32)}] = true
		for h := range want {
			if ok, err := sqlconn.TryLock(t.Context(), conn, h.Key, h.Mode); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		locks := inspectLocks(t, p)
		for _, l := range locks {
			h := advisory.HeldLock{Key: l.Key, Mode: l.Mode}
			if !want[h] || !l.Granted || l.PID != pid || len(l.WaitsFor)+len(l.WaitedForBy) != 0 || len(l.Hidden) != 0 {
				t.Errorf("%v", l)
			}
			delete(want, h)
		}
		if len(want) != 0 {
			t.Errorf("missing: %v", want)
		}
		held, err := sqlconn.Held(t.Context(), conn)
		if err != nil || len(held) != len(locks) {
			t.Error(len(held), len(locks), err)
		}
	})
}

// Another database of the server has locks of its own.
func TestLocksAreThoseOfOneDatabase(t *testing.T) {
	t.Parallel()
	a, b := harness.Drivers[0].Open(t, pgtest.URL(t)), harness.Drivers[0].Open(t, pgtest.URL(t))
	harness.TryLock(t, a.NewConn(t), harness.Key)
	if locks := inspectLocks(t, b); len(locks) != 0 {
		t.Errorf("%v", locks)
	}
}

func TestLocksTellWhoWaitsForWhom(t *testing.T) {
	t.Parallel()
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		holders := harness.Drivers[0].Open(t, as(t, p.Url, nil, "the holder"))
		holder := holders.NewConn(t)
		before := harness.Ask[time.Time](t, holder, "SELECT clock_timestamp()")
		harness.TryLock(t, holder, harness.Key)
		pid := harness.Ask[int](t, holder, "SELECT pg_backend_pid()")
		writer := blockOn(t, holders, harness.Key, advisory.Exclusive)
		reader := blockOn(t, holders, harness.Key, advisory.Shared)

		locks := inspectLocks(t, p)
		if len(locks) != 3 {
			t.Fatalf("%v", locks)
		}
		h, w, r := locks[0], locks[1], locks[2]
		if !h.Granted || h.PID != pid || !slices.Contains(h.WaitedForBy, writer) || len(h.WaitsFor) != 0 {
			t.Errorf("the holder: %v", h)
		}
		if h.Application != "the holder" || h.User == "" || h.Client == "" || h.State != "idle" || h.TransactionAge != 0 || h.QueryAge != 0 {
			t.Errorf("the holder: %+v", h)
		}
		if h.StateAge <= 0 || h.Since.Before(before) {
			t.Errorf("the holder is idle for %v, since %v; it began after %v", h.StateAge, h.Since, before)
		}
		if w.Granted || w.PID != writer || !slices.Equal(w.WaitsFor, []int{pid}) || w.State != "active" || w.TransactionAge <= 0 || w.QueryAge <= 0 {
			t.Errorf("the writer: %+v", w)
		}
		if w.Age <= 0 || w.Since.Before(h.Since) {
			t.Errorf("the writer waits for %v, since %v", w.Age, w.Since)
		}
		// The reader could share with nobody who holds it, and is queued up behind the writer.
		if r.Granted || r.PID != reader || r.Mode != advisory.Shared || !slices.Contains(r.WaitsFor, pid) || !slices.Contains(r.WaitsFor, writer) {
			t.Errorf("the reader: %+v", r)
		}
		if !slices.Equal(w.WaitedForBy, []int{reader}) {
			t.Errorf("behind the writer: %v", w)
		}
		for _, part := range []string{fmt.Sprint(harness.Key, " exclusive, held by pid ", pid), "application the holder", "idle for ", fmt.Sprint("pids ", writer, ", ", reader, " wait for it")} {
			if !strings.Contains(h.String(), part) {
				t.Errorf("%q is not in: %v", part, h)
			}
		}

		holding, err := inspect.Holders(t.Context(), p, harness.Key)
		if err != nil || len(holding) != 1 || holding[0].PID != pid || holding[0].Application != "the holder" {
			t.Errorf("%v, %v", holding, err)
		}
		if none, err := inspect.Holders(t.Context(), p, advisory.Int64(1)); err != nil || len(none) != 0 {
			t.Errorf("%v, %v", none, err)
		}
		if _, err := inspect.Holders(t.Context(), p, advisory.Key{}); !errors.Is(err, advisory.ErrInvalidKey) {
			t.Error(err)
		}
	})
}

// A prepared transaction keeps its locks, without a process, over a restart too.
func TestLocksOfPreparedTransactions(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t, "max_prepared_transactions=5")
	p := harness.Drivers[0].Open(t, server.Database(t))
	const gid = `two 'phase' \ commit`
	for i, name := range []string{gid, "other"} {
		conn := p.NewConn(t)
		harness.DoSQL(t, conn, "BEGIN")
		harness.DoSQL(t, conn, fmt.Sprintf("SELECT pg_advisory_xact_lock(7, %d)", i))
		harness.DoSQL(t, conn, "SAVEPOINT s")
		harness.DoSQL(t, conn, "SELECT txid_current()")
		harness.DoSQL(t, conn, "PREPARE TRANSACTION "+inspectQuote(name))
	}
	look := func() {
		t.Helper()
		locks := inspectLocks(t, p)
		if len(locks) != 2 {
			t.Fatalf("%v", locks)
		}
		for i, l := range locks {
			if l.PID != 0 || !l.Granted || l.Prepared != []string{gid, "other"}[i] || l.State != "prepared" || l.User != "postgres" || l.Age <= 0 || l.Key != advisory.Pair(7, int32(i)) {
				t.Errorf("%+v", l)
			}
		}
	}
	look()
	pid := blockOn(t, p, advisory.Pair(7, 0), advisory.Exclusive)
	locks := inspectLocks(t, p)
	if len(locks) != 3 || !slices.Equal(locks[0].WaitedForBy, []int{pid}) || !slices.Equal(locks[1].WaitsFor, []int{0}) || locks[1].PID != pid {
		t.Errorf("%v", locks)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	p = harness.Drivers[0].Open(t, p.Url)
	look()
	for _, name := range []string{gid, "other"} {
		harness.DoSQL(t, p, "ROLLBACK PREPARED "+inspectQuote(name))
	}
}

// What a role may not see is said.
func TestLocksSayWhatARoleMayNotSee(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t)
	database := harness.Unprivileged(t, server)
	super, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	super.Path = mustURL(t, database).Path
	admin := harness.Drivers[0].Open(t, super.String())
	role := mustURL(t, database).User.Username()
	harness.DoSQL(t, admin, "CREATE ROLE monitor LOGIN PASSWORD 'word' IN ROLE pg_monitor")
	harness.DoSQL(t, admin, "CREATE ROLE other LOGIN PASSWORD 'word'")
	others := harness.Drivers[0].Open(t, as(t, database, url.UserPassword("other", "word"), "theirs"))
	holder := others.NewConn(t)
	harness.TryLock(t, holder, harness.Key)
	waiter := blockOn(t, &harness.Pool{DB: others.DB, By: others.By, Url: super.String()}, harness.Key, advisory.Exclusive)

	for _, who := range []struct {
		role   string
		url    string
		hidden bool
	}{
		{"no rights", database, true},
		{"pg_monitor", as(t, database, url.UserPassword("monitor", "word"), ""), false},
		{"the same role", as(t, database, url.UserPassword("other", "word"), ""), false},
		{"superuser", super.String(), false},
	} {
		t.Run(who.role, func(t *testing.T) {
			for _, d := range harness.Drivers[:2] {
				locks := inspectLocks(t, d.Open(t, who.url))
				if len(locks) != 2 {
					t.Fatalf("%v", locks)
				}
				for i, l := range locks {
					if l.Key != harness.Key || l.User != "other" || l.Application != "theirs" || (len(l.WaitsFor) > 0) != (i == 1) || (len(l.WaitedForBy) > 0) != (i == 0) {
						t.Errorf("what all may see: %+v", l)
					}
					seen := map[string]bool{"client": l.Client != "", "state": l.State != "", "state_age": l.StateAge != 0}
					for name, seen := range seen {
						if slices.Contains(l.Hidden, name) == seen || seen == who.hidden {
							t.Errorf("%s: seen is %v: %+v", name, seen, l)
						}
					}
					if slices.Contains(l.Hidden, "since") == (l.Age > 0) {
						t.Errorf("age: %+v", l)
					}
					if said := strings.Contains(l.String(), "may not see: client"); said != who.hidden {
						t.Errorf("%v", l)
					}
				}
				// The server tells everybody since when a session waits, since PostgreSQL 14.
				if w := locks[1]; w.PID != waiter || (w.Age > 0) != (!who.hidden || server.Version() >= 140000) {
					t.Errorf("%+v", w)
				}
			}
		})
	}
	// One's own sessions are not hidden from anybody.
	mine := harness.Drivers[0].Open(t, database)
	harness.TryLock(t, mine.NewConn(t), advisory.Int64(1))
	for _, l := range inspectLocks(t, mine) {
		if hidden := len(l.Hidden) > 0; hidden != (l.User != role) {
			t.Errorf("%+v", l)
		}
	}
}

func TestLocksOfTenThousand(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t, "max_locks_per_transaction=200", "max_connections=200")
	p := harness.Drivers[0].Open(t, server.Database(t))
	harness.DoSQL(t, p.NewConn(t), "SELECT count(pg_advisory_lock_shared(i)) FROM generate_series(1, 10000) i")
	// A plan that joined each lock with each would take thousands of times as long as counting them.
	count := func() time.Duration {
		start := time.Now()
		harness.Ask[int](t, p, "SELECT count(*) FROM pg_locks")
		return time.Since(start)
	}
	look := func(want int) (locks []inspect.Lock) {
		t.Helper()
		var counted, looked time.Duration // the quickest
		for i := range 3 {
			c, start := count(), time.Now()
			locks = inspectLocks(t, p)
			l := time.Since(start)
			if i == 0 || c < counted {
				counted = c
			}
			if i == 0 || l < looked {
				looked = l
			}
			if len(locks) != want {
				t.Fatalf("%d locks, not %d", len(locks), want)
			}
		}
		t.Logf("%d locks in %v; they are counted in %v", want, looked, counted)
		if looked > 500*counted {
			t.Errorf("%d locks in %v, though they are counted in %v", want, looked, counted)
		}
		return locks
	}
	look(10000)
	// And with many who wait.
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	for range 100 {
		wg.Go(func() { p.ExecContext(ctx, "SELECT pg_advisory_lock(5000)") })
	}
	harness.Eventually(t, "all wait", func() bool { _, waiting := p.Locks(t); return waiting == 100 })
	locks := look(10100)
	if len(locks[4999].WaitedForBy) != 100 || len(locks[5098].WaitsFor) == 0 {
		t.Errorf("%v, %v", locks[4999], locks[5098])
	}
}

// It can be seen who has filled the server's lock table.
func TestLocksInAFullLockTable(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t, "max_locks_per_transaction=10", "max_connections=20", "max_prepared_transactions=1")
	for _, d := range harness.Drivers[:2] {
		t.Run(d.Name, func(t *testing.T) {
			p := d.Open(t, server.Database(t))
			watch, hog := p.NewConn(t), p.NewConn(t)
			pid := harness.Ask[int](t, hog, "SELECT pg_backend_pid()")
			if locks := inspectLocks(t, watch); len(locks) != 0 {
				t.Errorf("%v", locks)
			}
			full := harness.FillLockTable(t, hog)
			locks := inspectLocks(t, watch)
			if len(locks) != full {
				t.Errorf("%d locks, not %d", len(locks), full)
			}
			for _, l := range locks {
				if l.PID != pid || !l.Granted || l.Client == "" || l.State != "idle" || l.User == "" && !slices.Contains(l.Hidden, "user") {
					t.Fatalf("%+v", l)
				}
			}
			s := suspectOf(t, watch, inspect.Leak, pid)
			if len(s.Locks) != full || len(suspects(t, watch)) != 1 {
				t.Errorf("%v", suspects(t, watch))
			}
			h := inspect.Handler(watch)
			if r, body := answer(t, h, "GET", "/?after=2s"); r.StatusCode != 200 || !strings.Contains(body, fmt.Sprintf("<h3>leak, pid %d</h3>", pid)) ||
				!strings.Contains(body, "lock table is full") || strings.Contains(body, "pg_read_all_stats") {
				t.Errorf("%s: %s", r.Status, body)
			}
			if j := answerJSON(t, h); len(j.Locks) != full {
				t.Errorf("%d locks, not %d", len(j.Locks), full)
			}
			harness.DoSQL(t, watch, s.SQL)
			// Until then nobody can connect.
			harness.Eventually(t, "there is room again", func() bool { return len(inspectLocks(t, watch)) == 0 })
			p.NoLocks(t)
		})
	}
}

func mustURL(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// inspectQuote quotes a literal.
func inspectQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
