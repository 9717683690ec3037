// Package recipes_test has the recipes of docs/recipes.md, and runs them.
package recipes_test

import (
	"database/sql"
	"fmt"
	"os"
	"testing"

	_ "github.com/lib/pq"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

func TestMain(m *testing.M) {
	for variable, process := range map[string]func(url string) error{
		partitionsURL: partitionsProcess, leaderURL: leaderProcess,
	} {
		if url := os.Getenv(variable); url != "" {
			if err := process(url); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	pgtest.Main(m)
}

func open(t *testing.T, driver, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func newLocker(t *testing.T, url string, opts ...locker.Option) *locker.Locker {
	t.Helper()
	l := locker.New(open(t, "postgres", url), opts...)
	t.Cleanup(func() { l.Close() })
	return l
}

// held counts the advisory locks of a database.
func held(t *testing.T, url string) (n int) {
	t.Helper()
	const count = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	if err := open(t, "postgres", url).QueryRow(count).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
