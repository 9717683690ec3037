package conn_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/inspect"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// An adversity is what a role finds on a server where not all is as it comes.
type adversity struct {
	name  string
	polls bool     // so waits cannot be slices
	check string   // fails if the set-up has no effect
	setUp []string // statements of a superuser in the role's database; ROLE is the role
}

var adversities = []adversity{
	{"no right to plpgsql", true, "", []string{"REVOKE USAGE ON LANGUAGE plpgsql FROM PUBLIC"}},
	{"no plpgsql", true, "", []string{"DROP EXTENSION plpgsql"}},
	{"short deadlock_timeout", true, "", []string{"ALTER ROLE ROLE SET deadlock_timeout = '10ms'"}},
	{
		"functions of the same names", false,
		"DO $$BEGIN PERFORM pg_try_advisory_lock(1), min(1), pg_backend_pid(); ASSERT false; EXCEPTION WHEN SQLSTATE 'EVIL0' THEN NULL; END$$",
		append(evilFunctions(), "ALTER ROLE ROLE SET search_path = evil, pg_catalog"),
	},
}

// evilFunctions puts in a schema what this module calls, and reads, by the same names.
func evilFunctions() []string {
	statements := []string{"CREATE SCHEMA evil", "GRANT USAGE ON SCHEMA evil TO ROLE"}
	function := func(signature, returns string) {
		statements = append(statements, "CREATE FUNCTION evil."+signature+" RETURNS "+returns+
			" LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'evil was called' USING ERRCODE = 'EVIL0'; END$$")
	}
	for _, arguments := range []string{"(bigint)", "(int, int)"} {
		for _, shared := range []string{"", "_shared"} {
			function("pg_try_advisory_lock"+shared+arguments, "boolean")
			function("pg_try_advisory_xact_lock"+shared+arguments, "boolean")
			function("pg_advisory_lock"+shared+arguments, "void")
			function("pg_advisory_xact_lock"+shared+arguments, "void")
			function("pg_advisory_unlock"+shared+arguments, "boolean")
		}
	}
	for signature, returns := range map[string]string{
		"pg_advisory_unlock_all()":          "void",
		"set_config(text, text, boolean)":   "text",
		"current_setting(text)":             "text",
		"generate_series(int, int)":         "SETOF int",
		"unnest(bigint[])":                  "SETOF bigint",
		"unnest(int[])":                     "SETOF int",
		"unnest(boolean[])":                 "SETOF boolean",
		"now()":                             "timestamptz",
		"statement_timestamp()":             "timestamptz",
		"current_database()":                "name",
		"has_language_privilege(oid, text)": "boolean",
		"pg_backend_pid()":                  "int",
		"pg_blocking_pids(int)":             "int[]",
		"pg_stat_clear_snapshot()":          "void",
		"pg_terminate_backend(int)":         "boolean",
		"hashtext(text)":                    "int",
		"regexp_match(text, text)":          "text[]",
		"host(inet)":                        "text",
		"array_to_string(int[], text)":      "text",
		"clock_timestamp()":                 "timestamptz",
		"to_jsonb(anyelement)":              "jsonb",
		"evil_state(int, int)":              "int",
		"evil_text(text, text, text)":       "text",
		"pg_is_in_recovery()":               "boolean",
		"version()":                         "text",
		"date_part(text, interval)":         "float8",
		"\"extract\"(text, interval)":       "numeric",
		"count_state(bigint)":               "bigint",
	} {
		function(signature, returns)
	}
	return append(statements,
		"CREATE AGGREGATE evil.min(int) (SFUNC = evil.evil_state, STYPE = int)",
		"CREATE AGGREGATE evil.max(int) (SFUNC = evil.evil_state, STYPE = int)",
		"CREATE AGGREGATE evil.count(*) (SFUNC = evil.count_state, STYPE = bigint)",
		"CREATE AGGREGATE evil.string_agg(text, text) (SFUNC = evil.evil_text, STYPE = text)",
		"CREATE VIEW evil.pg_locks AS SELECT * FROM pg_catalog.pg_locks WHERE false",
		"CREATE VIEW evil.pg_stat_activity AS SELECT * FROM pg_catalog.pg_stat_activity WHERE false",
		"CREATE VIEW evil.pg_prepared_xacts AS SELECT * FROM pg_catalog.pg_prepared_xacts WHERE false",
		"CREATE VIEW evil.pg_database AS SELECT * FROM pg_catalog.pg_database WHERE false",
		"CREATE VIEW evil.pg_language AS SELECT * FROM pg_catalog.pg_language WHERE false",
		"CREATE DOMAIN evil.int2 AS pg_catalog.int2 CHECK (false)",
		"CREATE DOMAIN evil.int4 AS pg_catalog.int4 CHECK (false)",
		"CREATE DOMAIN evil.int8 AS pg_catalog.int8 CHECK (false)",
		"CREATE DOMAIN evil.oid AS pg_catalog.oid CHECK (false)",
		"CREATE DOMAIN evil.text AS pg_catalog.text CHECK (false)",
		"CREATE DOMAIN evil.interval AS pg_catalog.interval CHECK (false)",
		"GRANT SELECT ON ALL TABLES IN SCHEMA evil TO ROLE",
	)
}

// Waits work all the same, and the server has nothing to log.
func TestWaitsInAdversity(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t, "max_connections=300")
	harness.AtOnce(t, func(all *harness.Together) {
		for _, a := range adversities {
			for _, d := range harness.Drivers[:2] {
				all.Start(a.name+"/"+d.Name, func(t *testing.T) { a.test(t, server, d) })
			}
		}
	})
}

// adverse opens a pool of the role, and one of a superuser to the same database.
func adverse(t *testing.T, server *pgtest.Server, d harness.Driver, setUp []string) (p, watch *harness.Pool) {
	t.Helper()
	roleURL := harness.Unprivileged(t, server)
	u, err := url.Parse(roleURL)
	if err != nil {
		t.Fatal(err)
	}
	role := u.User.Username()
	super, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = super.User
	watch = harness.Drivers[0].Open(t, u.String())
	for _, s := range setUp {
		harness.DoSQL(t, watch, strings.NewReplacer("ROLE ROLE", "ROLE "+role, "TO ROLE", "TO "+role).Replace(s))
	}
	p = d.Open(t, roleURL)
	p.Url = watch.Url
	return p, watch
}

func (a adversity) test(t *testing.T, server *pgtest.Server, d harness.Driver) {
	p, watch := adverse(t, server, d, a.setUp)
	if a.check != "" {
		harness.DoSQL(t, p, a.check)
	}

	holder := p.NewConn(t)
	harness.TryLock(t, holder, harness.Key)
	tries(p, t)

	// They wait for longer than any of the timeouts, and get it.
	done := make(chan error, len(kinds))
	for _, kind := range kinds {
		go func() {
			err := kind.wait(context.Background(), p, harness.Key, func() {})
			if err != nil {
				err = errors.Join(errors.New(kind.name), err)
			}
			done <- err
		}()
	}
	harness.Eventually(t, "all wait", func() bool {
		return harness.Ask[int](t, watch, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '/*pgadvisory waits%'") == len(kinds)
	})
	waitsOnServer := func() (waits bool) {
		for end := time.Now().Add(1300 * time.Millisecond); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			waits = waits || harness.Ask[bool](t, watch, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))")
		}
		return waits
	}
	if waits := waitsOnServer(); waits == a.polls {
		t.Errorf("somebody waits on the server: %v", waits)
	}
	select {
	case err := <-done:
		t.Fatalf("a wait ended before the lock was free: %v", err)
	default:
	}
	harness.Unlock(t, holder, harness.Key)
	for range kinds {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}

	// So does a Locker.
	harness.TryLock(t, holder, harness.Key)
	locker := locker.New(p.DB)
	defer locker.Close()
	go func() {
		done <- locker.Do(context.Background(), harness.Key, func(context.Context) error { return nil })
	}()
	if waits := waitsOnServer(); waits == a.polls {
		t.Errorf("the Locker waits on the server: %v", waits)
	}
	harness.Unlock(t, holder, harness.Key)
	if err := <-done; err != nil {
		t.Errorf("the Locker: %v", err)
	}
	locker.Close()

	// They end in time, and say who has it.
	harness.TryLock(t, holder, harness.Key)
	for _, kind := range kinds {
		var na *advisory.NotAcquiredError
		err := kind.wait(context.Background(), p, harness.Key, func() {}, advisory.MaxWait(50*time.Millisecond))
		if !errors.As(err, &na) || len(na.Holders) != 1 {
			t.Errorf("%s: %v", kind.name, err)
		}
	}
	if locks, err := inspect.Locks(context.Background(), p); err != nil || len(locks) != 1 || locks[0].Key != harness.Key {
		t.Errorf("locks: %v, %v", locks, err)
	}
	if _, err := inspect.Suspects(context.Background(), p); err != nil {
		t.Error(err)
	}
	held, err := sqlconn.Held(context.Background(), holder)
	if len(held) != 1 || held[0].Key != harness.Key || err != nil {
		t.Errorf("held: %v, %v", held, err)
	}
	if err := sqlconn.UnlockAll(context.Background(), holder); err != nil {
		t.Error(err)
	}

	// Who waits for each other is told.
	other := p.Tx(t, nil)
	mine, theirs := advisory.Int64(1), advisory.Pair(0, 1)
	harness.TryLock(t, holder, mine)
	if ok, err := xact.TryLock(context.Background(), other, theirs); !ok || err != nil {
		t.Fatal(ok, err)
	}
	told := make(chan error, 1)
	go func() {
		err := xact.Lock(context.Background(), other, mine)
		other.Rollback()
		told <- err
	}()
	err = sqlconn.Lock(context.Background(), holder, theirs)
	sqlconn.UnlockAll(context.Background(), holder)
	err2 := <-told
	if err == nil && err2 == nil {
		t.Error("nobody is told of a deadlock")
	}
	for _, err := range []error{err, err2} { // both may be, on a very busy machine
		if err != nil && !errors.Is(err, advisory.ErrDeadlock) {
			t.Errorf("a deadlock: %v", err)
		}
	}

	p.NoLocks(t)
	harness.Silent(t, server, p)
}
