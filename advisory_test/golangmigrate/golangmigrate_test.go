// Package golangmigrate_test runs golang-migrate under a Locker's lock, as docs/recipes.md has
// it, in several processes at once.
//
// go.mod requires golang-migrate's current version, older.mod an older one. It is a module of its
// own, since golang-migrate brings a large tree.
package golangmigrate_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database/postgres"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	_ "github.com/lib/pq"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/interop"
	"github.com/pgadvisory/pgadvisory/locker"
)

// A process of the fleet is this test's program again, with the database and the way to migrate.
const (
	databaseOfProcess = "PGADVISORY_MIGRATE_DATABASE"
	wayOfProcess      = "PGADVISORY_MIGRATE_WAY"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(databaseOfProcess); url != "" {
		if err := runProcess(url, os.Getenv(wayOfProcess)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	pgtest.Main(m)
}

func runProcess(url, way string) error {
	if way == "alone" {
		return migrateUp(context.Background(), url, othersWait, nil)
	}
	db, err := sql.Open("postgres", url)
	if err != nil {
		return err
	}
	defer db.Close()
	l := locker.New(db)
	defer l.Close()
	return migrateUnderLock(context.Background(), l, url, othersWait, nil)
}

var key = advisory.Name("billing", "migrations")

// migrateUnderLock is the recipe. golang-migrate's driver takes golang-migrate's lock when it is
// made, too, so it is made under ours.
func migrateUnderLock(ctx context.Context, l *locker.Locker, url, wait string, lost chan<- bool) error {
	return l.Do(ctx, key, func(ctx context.Context) error {
		return migrateUp(ctx, url, wait, lost)
	})
}

// migrateUp runs the migrations one by one, and stops before the next if ctx has ended. It sends to
// lost, if there is one, when ctx ends.
func migrateUp(ctx context.Context, url, wait string, lost chan<- bool) error {
	db, err := sql.Open("postgres", url)
	if err != nil {
		return err
	}
	files, err := iofs.New(migrations(wait), ".")
	if err != nil {
		return err
	}
	driver, err := postgres.WithInstance(db, &postgres.Config{})
	if err != nil {
		return err
	}
	m, err := migrate.NewWithInstance("iofs", files, "postgres", driver)
	if err != nil {
		return err
	}
	defer m.Close()
	defer context.AfterFunc(ctx, func() {
		if lost != nil {
			lost <- true
		}
	})()
	for ctx.Err() == nil {
		if err := m.Steps(1); errors.Is(err, fs.ErrNotExist) {
			return nil // all have run
		} else if err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// migrations, if two processes ran them at once, would fail or do things twice. The index is
// built after wait.
func migrations(wait string) fstest.MapFS {
	return fstest.MapFS{
		"1_accounts.up.sql":       {Data: []byte("CREATE TABLE accounts (id bigint GENERATED ALWAYS AS IDENTITY, email text)")},
		"2_first_accounts.up.sql": {Data: []byte("INSERT INTO accounts (email) SELECT 'a' || n || '@example' FROM generate_series(1, 1000) n")},
		"3_wait.up.sql":           {Data: []byte(wait)},
		"4_index.up.sql":          {Data: []byte("CREATE INDEX CONCURRENTLY accounts_email ON accounts (email)")},
		"5_status.up.sql":         {Data: []byte("ALTER TABLE accounts ADD COLUMN status text NOT NULL DEFAULT 'new'")},
	}
}

const (
	fleet = 5
	// othersWait ends when the rest of the fleet waits for a lock.
	othersWait = `DO $$ BEGIN
		FOR i IN 1 .. 3000 LOOP
			EXIT WHEN 4 = (SELECT count(DISTINCT pid) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
				AND database = (SELECT oid FROM pg_database WHERE datname = current_database()));
			PERFORM pg_sleep(0.01);
		END LOOP;
	END $$`
	doNotWait = "SELECT 1"
)

// runFleet starts the processes at once and returns what those that failed wrote.
func runFleet(t *testing.T, url, way string) (failures []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range fleet {
		process := exec.CommandContext(ctx, os.Args[0])
		process.Env = append(os.Environ(), databaseOfProcess+"="+url, wayOfProcess+"="+way)
		wg.Go(func() {
			if out, err := process.CombinedOutput(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failures = append(failures, fmt.Sprintf("%v: %s", err, out))
			}
		})
	}
	wg.Wait()
	return failures
}

func open(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func migrated(t *testing.T, db *sql.DB) {
	t.Helper()
	for query, want := range map[string]int{
		"SELECT count(*) FROM accounts WHERE status = 'new'":                                                                                        1000,
		"SELECT count(*) FROM pg_index WHERE indexrelid = 'accounts_email'::regclass AND indisvalid":                                                1,
		"SELECT count(*) FROM schema_migrations WHERE version = 5 AND NOT dirty":                                                                    1,
		"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())": 0,
	} {
		var n int
		if err := db.QueryRow(query).Scan(&n); err != nil || n != want {
			t.Errorf("%s: %d, %v, want %d", query, n, err, want)
		}
	}
}

func TestFleetMigratesWithConcurrentIndex(t *testing.T) {
	url := pgtest.URL(t)
	for _, failure := range runFleet(t, url, "under a lock") {
		t.Error(failure)
	}
	migrated(t, open(t, url))
}

// Why the recipe is needed: a process that waits for golang-migrate's own lock has a snapshot, for
// which CREATE INDEX CONCURRENTLY waits, under that lock.
func TestFleetOfGolangMigrateAloneFails(t *testing.T) {
	failures := runFleet(t, pgtest.URL(t), "alone")
	if all := strings.Join(failures, ""); !strings.Contains(all, "deadlock detected") {
		t.Errorf("without the recipe there is no deadlock any more: %q", all)
	}
}

// golang-migrate's own lock is held as well, so that its command line, which knows no other, is
// excluded.
func TestGolangMigratesOwnLockIsHeldAsWell(t *testing.T) {
	url := pgtest.URL(t)
	db := open(t, url)
	var name string
	if err := db.QueryRow("SELECT current_database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	other := locker.New(db)
	defer other.Close()
	lock, err := other.Lock(t.Context(), interop.GolangMigrate(name, "public", "schema_migrations"))
	if err != nil {
		t.Fatal(err)
	}
	l := locker.New(open(t, url))
	defer l.Close()
	ended := make(chan error, 1)
	go func() { ended <- migrateUnderLock(t.Context(), l, url, doNotWait, nil) }()
	for waiting := 0; waiting == 0; time.Sleep(5 * time.Millisecond) {
		if err := db.QueryRow("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			t.Fatalf("it did not wait for golang-migrate's lock: %v", err)
		default:
		}
	}
	if err := lock.Unlock(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	migrated(t, db)
}

func TestLostLockStopsBeforeTheNextMigration(t *testing.T) {
	const untilTold = "SELECT pg_advisory_xact_lock_shared(1)"
	url := pgtest.URL(t)
	db := open(t, url)
	holder := locker.New(db)
	defer holder.Close()
	holds, err := holder.Lock(t.Context(), advisory.Int64(1))
	if err != nil {
		t.Fatal(err)
	}
	l := locker.New(open(t, url))
	defer l.Close()
	lost, ended := make(chan bool, 1), make(chan error, 1)
	go func() { ended <- migrateUnderLock(t.Context(), l, url, untilTold, lost) }()
	for running := 0; running == 0; time.Sleep(5 * time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("the migrations have ended: %v", err)
		default:
		}
		if err := db.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query = $1 AND wait_event_type = 'Lock'", untilTold).Scan(&running); err != nil {
			t.Fatal(err)
		}
	}
	class, object := keyInPgLocks(key)
	var terminated bool
	if err := db.QueryRow(`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
		AND classid::bigint = $1 AND objid::bigint = $2 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, class, object).Scan(&terminated); err != nil {
		t.Fatal(err)
	}
	<-lost
	if err := holds.Unlock(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, advisory.ErrLost) {
		t.Errorf("%v, want ErrLost", err)
	}
	var version int
	var dirty bool
	if err := db.QueryRow("SELECT version, dirty FROM schema_migrations").Scan(&version, &dirty); err != nil || version != 3 || dirty {
		t.Errorf("version %d, dirty %v, %v: want 3, the one that was running", version, dirty, err)
	}
	// The next process goes on from there.
	if err := migrateUnderLock(t.Context(), l, url, doNotWait, nil); err != nil {
		t.Error(err)
	}
	migrated(t, db)
}

func keyInPgLocks(key advisory.Key) (class, object int64) {
	n, _ := key.Int64()
	return int64(uint64(n) >> 32), int64(uint32(n))
}
