package pooler_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/inspect"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// The names of two compatible servers, as version() has them.
var otherNames = []string{
	"CockroachDB CCL v26.1.0 (x86_64-pc-linux-gnu)",
	"PostgreSQL 15.2-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu",
}

// A disguise is a PostgreSQL that has another's name and some of its functions.
type disguise struct {
	t     testing.TB
	url   string
	admin *sql.Conn
}

// disguised starts a server of the test's own.
func disguised(t testing.TB) *disguise {
	t.Helper()
	url := pgtest.NewServer(t).URL()
	admin, err := harness.Drivers[0].Open(t, url).DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.Close() })
	harness.DoSQL(t, admin, "SET allow_system_table_mods = on")
	return &disguise{t, url, admin}
}

// named replaces the server's name until the end of the test t.
func (d *disguise) named(t testing.TB, name string) {
	d.replace(t, "version", "", "text", "SELECT '"+name+"'::text")
}

// stub makes a lock function return true and lock nothing until the end of the test t.
func (d *disguise) stub(t testing.TB, signature string) {
	name, args := split(signature)
	result, body := "boolean", "SELECT true"
	if !strings.Contains(name, "_try_") && !strings.Contains(name, "_unlock") {
		result, body = "void", "SELECT"
	}
	d.replace(t, name, args, result, body)
}

func (d *disguise) replace(t testing.TB, name, args, result, body string) {
	t.Helper()
	d.remove(t, name, args)
	harness.DoSQL(t, d.admin, "CREATE FUNCTION pg_catalog."+name+"("+args+") RETURNS "+result+" LANGUAGE sql AS '"+strings.ReplaceAll(body, "'", "''")+"'")
	t.Cleanup(func() { d.do("DROP FUNCTION pg_catalog." + name + "(" + args + ")") })
}

// remove takes a function from the server until the end of the test t.
func (d *disguise) remove(t testing.TB, name, args string) {
	t.Helper()
	harness.DoSQL(t, d.admin, "ALTER FUNCTION pg_catalog."+name+"("+args+") RENAME TO real_"+name)
	t.Cleanup(func() { d.do("ALTER FUNCTION pg_catalog.real_" + name + "(" + args + ") RENAME TO " + name) })
}

// do runs a statement at the end of a test, when its ctx has ended.
func (d *disguise) do(text string) {
	if _, err := d.admin.ExecContext(context.Background(), text); err != nil {
		d.t.Errorf("%s: %v", text, err)
	}
}

func split(signature string) (name, args string) {
	name, args, _ = strings.Cut(strings.TrimSuffix(signature, ")"), "(")
	return name, args
}

// bothSpaces returns the functions with both kinds of arguments.
func bothSpaces(names ...string) (all []string) {
	for _, n := range names {
		all = append(all, n+"(bigint)", n+"(int, int)")
	}
	return all
}

var (
	sessionFunctions = bothSpaces("pg_try_advisory_lock", "pg_try_advisory_lock_shared")
	xactFunctions    = bothSpaces("pg_try_advisory_xact_lock", "pg_try_advisory_xact_lock_shared")
	stubsOfSession   = append(bothSpaces("pg_advisory_lock", "pg_advisory_lock_shared", "pg_advisory_unlock", "pg_advisory_unlock_shared"), sessionFunctions...)
)

// sessionUses are the uses of session-level locks, each on a pool of its own.
func sessionUses(t testing.TB, d harness.Driver, url string) map[string]func() error {
	fresh := func(use func(p *harness.Pool) error) func() error {
		return func() error {
			p := d.Open(t, url)
			defer p.Close()
			return use(p)
		}
	}
	ran := errors.New("fn has not run")
	work := func(context.Context, *sql.Conn) error { ran = nil; return nil }
	return map[string]func() error{
		"Locker": fresh(func(p *harness.Pool) error {
			l := locker.New(p.DB)
			defer l.Close()
			lock, err := l.Lock(t.Context(), harness.Key)
			if err != nil {
				return err
			}
			return lock.Unlock()
		}),
		"Do": fresh(func(p *harness.Pool) error {
			return errors.Join(sqlconn.Do(t.Context(), p.DB.Conn, harness.Key, work), ran)
		}),
		"TryDo": fresh(func(p *harness.Pool) error {
			_, err := sqlconn.TryDo(t.Context(), p.DB.Conn, harness.Key, work)
			return errors.Join(err, ran)
		}),
	}
}

func refusedBecause(t testing.TB, what string, err error, reason advisory.UnsafeReason, words ...string) {
	t.Helper()
	unsafe, ok := errors.AsType[*advisory.UnsafeServerError](err)
	if !ok || unsafe.Reason != reason {
		t.Errorf("%s: %v, not refused because of %q", what, err, reason)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v: no %q", what, err, w)
		}
	}
}

// A server with another name whose functions are real gives out locks.
func TestCompatibleServerWithRealFunctions(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := disguised(t)
	for _, name := range otherNames {
		t.Run(name[:10], func(t *testing.T) {
			server.named(t, name)
			for _, d := range harness.Drivers[:2] {
				for what, use := range sessionUses(t, d, server.url) {
					if err := use(); err != nil {
						t.Errorf("%s: %s: %v", d.Name, what, err)
					}
				}
				p := d.Open(t, server.url)
				for what, call := range connCalls(p) {
					if what == "Do" || what == "TryDo" {
						continue // they check the pool, after which the others lock
					}
					refusedBecause(t, d.Name+": "+what, call(), advisory.NotPostgreSQL, "version()", "Do")
				}
				if err := connCalls(p)["Do"](); err != nil {
					t.Errorf("%s: Do: %v", d.Name, err)
				}
				for what, call := range connCalls(p) {
					if err := call(); err != nil {
						t.Errorf("%s: %s after the check of the pool: %v", d.Name, what, err)
					}
				}
				r, err := inspect.Check(t.Context(), p.DB)
				if err != nil {
					t.Fatal(err)
				}
				harness.Finds(t, r, "PostgreSQL", inspect.Warning, name, "pg_try_advisory_xact_lock_shared(int, int)")
				p.NoLocks(t)
			}
		})
	}
}

// Locks of a server with another name exclude, also for those who wait.
func TestWaitOnACompatibleServer(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := disguised(t)
	server.named(t, otherNames[1])
	for _, d := range harness.Drivers[:2] {
		one, two := locker.New(d.Open(t, server.url).DB), locker.New(d.Open(t, server.url).DB)
		lock, err := one.Lock(t.Context(), harness.Key)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok, err := two.TryLock(t.Context(), harness.Key); ok || err != nil {
			t.Errorf("%s: TryLock of a held key: %v, %v", d.Name, ok, err)
		}
		time.AfterFunc(300*time.Millisecond, func() { lock.Unlock() })
		next, err := two.Lock(t.Context(), harness.Key)
		if err != nil {
			t.Fatal(err)
		}
		if lock.Context().Err() == nil {
			t.Errorf("%s: two holders", d.Name)
		}
		next.Unlock()
		one.Close()
		two.Close()
	}
}

// One session-level function that grants everything is enough for a refusal that names it.
func TestCompatibleServerWithOneStub(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := disguised(t)
	server.named(t, otherNames[0])
	for _, fn := range sessionFunctions {
		t.Run(fn, func(t *testing.T) {
			server.stub(t, fn)
			for _, d := range harness.Drivers[:2] {
				for what, use := range sessionUses(t, d, server.url) {
					refusedBecause(t, d.Name+": "+what, use(), advisory.NoExclusion, fn)
				}
				checkNames(t, server.url, d, fn)
			}
		})
	}
	for _, fn := range bothSpaces("pg_advisory_lock", "pg_advisory_lock_shared") {
		t.Run(fn, func(t *testing.T) {
			server.stub(t, fn)
			l := locker.New(harness.Drivers[0].Open(t, server.url).DB)
			defer l.Close()
			refusedBecause(t, "Ping", l.Ping(t.Context()), advisory.NoExclusion, "of a key taken by "+fn)
		})
	}
	for _, fn := range xactFunctions {
		t.Run(fn, func(t *testing.T) {
			server.stub(t, fn)
			for _, d := range harness.Drivers[:2] {
				for what, use := range sessionUses(t, d, server.url) {
					if err := use(); err != nil {
						t.Errorf("%s: %s: %v", d.Name, what, err)
					}
				}
				checkNames(t, server.url, d, fn)
			}
		})
	}
}

// checkNames fails the test unless inspect.Check finds that fn, of all functions, excludes nobody.
func checkNames(t *testing.T, url string, d harness.Driver, fn string) {
	t.Helper()
	p := d.Open(t, url)
	defer p.Close()
	r, err := inspect.Check(t.Context(), p.DB)
	if err != nil {
		t.Fatal(err)
	}
	harness.Finds(t, r, "PostgreSQL", inspect.Unsafe, "do not: "+fn)
	refusedBecause(t, "Check", r.Err(), advisory.NotPostgreSQL)
}

// All session-level functions are stubs, and the transaction-level ones are real.
func TestCompatibleServerWithSessionLevelStubs(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := disguised(t)
	server.named(t, otherNames[0])
	for _, fn := range stubsOfSession {
		server.stub(t, fn)
	}
	for _, d := range harness.Drivers[:2] {
		for what, use := range sessionUses(t, d, server.url) {
			refusedBecause(t, d.Name+": "+what, use(), advisory.NoExclusion, "pg_try_advisory_lock(bigint)")
		}
		p := d.Open(t, server.url)
		for what, call := range connCalls(p) {
			if err := call(); !errors.Is(err, advisory.ErrUnsafeServer) {
				t.Errorf("%s: %s: %v", d.Name, what, err)
			}
		}
		r, err := inspect.Check(t.Context(), p.DB)
		if err != nil {
			t.Fatal(err)
		}
		harness.Finds(t, r, "PostgreSQL", inspect.Unsafe,
			"these exclude: "+strings.Join(xactFunctions, ", ")+";", "do not: "+strings.Join(sessionFunctions, ", "), "only package xact")
		p.NoLocks(t)
	}
}

// Functions that do not exist, or that nobody may call yet, are refused at once.
func TestCompatibleServerWithoutFunctions(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := disguised(t)
	server.named(t, otherNames[1])
	for _, c := range []struct {
		fn, error string
		how       func(t testing.TB, name, args string)
	}{
		{"pg_try_advisory_lock(bigint)", "does not exist", func(t testing.TB, name, args string) { server.remove(t, name, args) }},
		{"pg_advisory_unlock(int, int)", "does not exist", func(t testing.TB, name, args string) { server.remove(t, name, args) }},
		{"pg_try_advisory_lock_shared(int, int)", "not yet", func(t testing.TB, name, args string) {
			server.remove(t, name, args)
			harness.DoSQL(t, server.admin, "CREATE FUNCTION pg_catalog."+name+"("+args+") RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'not yet' USING ERRCODE = '0A000'; END$$")
			t.Cleanup(func() { server.do("DROP FUNCTION pg_catalog." + name + "(" + args + ")") })
		}},
	} {
		t.Run(c.fn, func(t *testing.T) {
			name, args := split(c.fn)
			c.how(t, name, args)
			for _, d := range harness.Drivers[:2] {
				for what, use := range sessionUses(t, d, server.url) {
					refusedBecause(t, d.Name+": "+what, use(), advisory.NotPostgreSQL, c.error)
				}
				p := d.Open(t, server.url)
				r, err := inspect.Check(t.Context(), p.DB)
				if err != nil {
					t.Fatal(err)
				}
				harness.Finds(t, r, "PostgreSQL", inspect.Unsafe, c.error)
				refusedBecause(t, d.Name+": Do", connCalls(p)["Do"](), advisory.NotPostgreSQL)
				p.NoLocks(t) // its idle connections are still open
			}
		})
	}
	t.Run("transaction level", func(t *testing.T) {
		for _, fn := range xactFunctions {
			name, args := split(fn)
			server.remove(t, name, args)
		}
		for _, d := range harness.Drivers[:2] {
			for what, use := range sessionUses(t, d, server.url) {
				if err := use(); err != nil {
					t.Errorf("%s: %s: %v", d.Name, what, err)
				}
			}
			r, err := inspect.Check(t.Context(), d.Open(t, server.url).DB)
			if err != nil {
				t.Fatal(err)
			}
			harness.Finds(t, r, "PostgreSQL", inspect.Unsafe, "do not: "+strings.Join(xactFunctions, ", "))
		}
	})
}

// What rests on PostgreSQL's replication and write-ahead log, and a server that nobody tried, are
// refused.
func TestOptionsOnACompatibleServer(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := disguised(t)
	server.named(t, otherNames[1])
	for _, d := range harness.Drivers[:2] {
		for what, c := range map[string]struct {
			option locker.Option
			words  string
		}{
			"WithStandby":        {locker.WithStandby(), "leave out WithStandby"},
			"WithFencing":        {locker.WithFencing(), "leave out WithFencing"},
			"WithoutServerCheck": {locker.WithoutServerCheck(), "leave out WithoutServerCheck"},
		} {
			l := locker.New(d.Open(t, server.url).DB, c.option)
			refusedBecause(t, d.Name+": "+what, l.Ping(t.Context()), advisory.NotPostgreSQL, c.words, "version() is "+otherNames[1])
			l.Close()
		}
	}
}

// Before the check has succeeded there is no lock, though the connection is direct.
func TestNoLockOnACompatibleServerBeforeTheCheck(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := disguised(t)
	server.named(t, otherNames[0])
	for _, d := range harness.Drivers[:2] {
		p := d.Open(t, server.url)
		p.SetMaxOpenConns(2)
		busy, err := p.DB.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		l := locker.New(p.DB)
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
		if _, err := l.Lock(ctx, harness.Key); err == nil {
			t.Errorf("%s: a lock without a check", d.Name)
		}
		stop()
		busy.Close()
		if _, err := l.Lock(t.Context(), harness.Key); err != nil {
			t.Errorf("%s: Lock with a connection for the check: %v", d.Name, err)
		}
		l.Close()
	}
}

// A pool that has passed the check on PostgreSQL may lead to another server later.
func TestPoolThatLeadsToACompatibleServerLater(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := disguised(t)
	for _, d := range harness.Drivers[:2] {
		t.Run(d.Name, func(t *testing.T) {
			p := d.Open(t, server.url)
			try := func() (bool, error) {
				l := locker.New(p.DB)
				defer l.Close()
				_, ok, err := l.TryLock(t.Context(), harness.Key)
				return ok, err
			}
			if ok, err := try(); !ok || err != nil {
				t.Fatal(ok, err)
			}
			server.named(t, otherNames[0])
			server.stub(t, "pg_try_advisory_lock(bigint)")
			if ok, err := try(); ok || !errors.Is(err, advisory.ErrUnsafeServer) {
				t.Errorf("a stub: %v, %v", ok, err)
			}
		})
	}
}
