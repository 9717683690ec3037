// Package goose_test runs the tests that goose has for its own locks on ours, and
// migrations as goose's users run them: many processes at once.
//
// go.mod requires a current version of goose, older.mod the first that has lock.Locker. It is a
// module of its own, since goose brings a large tree.
package goose_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"github.com/pressly/goose/v3/lock/locktesting"

	"github.com/pgadvisory/pgadvisory/adapt"
	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var (
	_ lock.SessionLocker = (*adapt.GooseLocker)(nil)
	_ lock.Locker        = (*adapt.GooseLocker)(nil)
)

var key = advisory.Name("example", "migrations")

// ways are the two in which goose takes a lock.
var ways = map[string]func(*adapt.GooseLocker) goose.ProviderOption{
	"SessionLocker": func(s *adapt.GooseLocker) goose.ProviderOption { return goose.WithSessionLocker(s) },
	"Locker":        func(s *adapt.GooseLocker) goose.ProviderOption { return goose.WithLocker(s) },
}

// eachWay runs a subtest for each way through each driver, with a fresh database, in
// which no lock may be left.
func eachWay(t *testing.T, test func(t *testing.T, db *sql.DB, option func(*adapt.GooseLocker) goose.ProviderOption)) {
	for way, option := range ways {
		for _, driver := range []string{"postgres", "pgx"} {
			t.Run(way+"/"+driver, func(t *testing.T) {
				t.Parallel()
				db := open(t, driver)
				test(t, db, option)
				nothingIsLeft(t, db)
			})
		}
	}
}

func open(t *testing.T, driver string) *sql.DB {
	db, err := sql.Open(driver, pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func nothingIsLeft(t *testing.T, db *sql.DB) {
	t.Helper()
	if n := db.Stats().InUse; n != 0 {
		t.Errorf("%d connections are in use", n)
	}
	if n := count(t, db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"); n != 0 {
		t.Errorf("%d locks are left", n)
	}
}

func count(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRow(query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// migrations, if two processes ran them at once, would fail or do things twice.
var migrations = fstest.MapFS{
	"00001_accounts.sql": {Data: []byte(`-- +goose Up
CREATE TABLE accounts (id bigint GENERATED ALWAYS AS IDENTITY, email text);
`)},
	"00002_first_accounts.sql": {Data: []byte(`-- +goose Up
INSERT INTO accounts (email) SELECT 'a' || n || '@example' FROM generate_series(1, 1000) n;
`)},
	"00003_index.sql": {Data: []byte(`-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY accounts_email ON accounts (email);
`)},
	"00004_status.sql": {Data: []byte(`-- +goose Up
ALTER TABLE accounts ADD COLUMN status text NOT NULL DEFAULT 'new';
`)},
}

func newProvider(t *testing.T, db *sql.DB, options ...goose.ProviderOption) *goose.Provider {
	t.Helper()
	p, err := goose.NewProvider(goose.DialectPostgres, db, migrations, options...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestGoosesTestOfProviders(t *testing.T) {
	eachWay(t, func(t *testing.T, db *sql.DB, option func(*adapt.GooseLocker) goose.ProviderOption) {
		locktesting.TestProviderLocking(t, func(t *testing.T) *goose.Provider {
			return newProvider(t, db, option(adapt.Goose(key)))
		})
	})
}

func TestGoosesTestOfLockers(t *testing.T) {
	for _, driver := range []string{"postgres", "pgx"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			db := open(t, driver)
			locktesting.TestConcurrentLocking(t, db, func(*testing.T) lock.Locker { return adapt.Goose(key) }, 2*time.Second)
			nothingIsLeft(t, db)
		})
	}
}

// Five providers at once, some of which share a Session.
func TestMigrationsRunOnce(t *testing.T) {
	eachWay(t, func(t *testing.T, db *sql.DB, option func(*adapt.GooseLocker) goose.ProviderOption) {
		var runs atomic.Int64
		up := &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			runs.Add(1)
			_, err := tx.ExecContext(ctx, "UPDATE accounts SET status = 'known'")
			return err
		}}
		one := adapt.Goose(key)
		var wg sync.WaitGroup
		for i := range 5 {
			session := one
			if i%2 == 0 {
				session = adapt.Goose(key)
			}
			p := newProvider(t, db, option(session), goose.WithGoMigrations(goose.NewGoMigration(5, up, nil)))
			wg.Go(func() {
				results, err := p.Up(t.Context())
				if err != nil {
					t.Error(err)
				}
				if n := len(results); n != 0 && n != 5 {
					t.Errorf("%d of the migrations ran", n)
				}
			})
		}
		wg.Wait()
		if n := runs.Load(); n != 1 {
			t.Errorf("the migration in Go ran %d times", n)
		}
		for query, want := range map[string]int{
			"SELECT count(*) FROM accounts WHERE status = 'known'":                                       1000,
			"SELECT count(*) FROM pg_index WHERE indexrelid = 'accounts_email'::regclass AND indisvalid": 1,
			"SELECT count(*) FROM goose_db_version WHERE version_id > 0":                                 5,
		} {
			if n := count(t, db, query); n != want {
				t.Errorf("%s: %d, want %d", query, n, want)
			}
		}
	})
}

func TestMigrationThatFailsReleasesTheLock(t *testing.T) {
	eachWay(t, func(t *testing.T, db *sql.DB, option func(*adapt.GooseLocker) goose.ProviderOption) {
		fails := &goose.GoFunc{RunTx: func(context.Context, *sql.Tx) error { return fmt.Errorf("it fails") }}
		p := newProvider(t, db, option(adapt.Goose(key)), goose.WithGoMigrations(goose.NewGoMigration(5, fails, nil)))
		if _, err := p.Up(t.Context()); err == nil {
			t.Error("no error")
		}
		nothingIsLeft(t, db)
		p = newProvider(t, db, option(adapt.Goose(key, advisory.MaxWait(0))))
		if _, err := p.Up(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
