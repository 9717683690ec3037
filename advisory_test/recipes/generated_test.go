package recipes_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/recipes/ent"
	"github.com/pgadvisory/pgadvisory/advisory_test/recipes/sqlc"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/xact"
)

func bySQLC(ctx context.Context, db *sql.DB, queries *sqlc.Queries, key advisory.Key) (bool, error) {
	return xact.TryDo(ctx, db.BeginTx, key, func(ctx context.Context, tx *sql.Tx) error {
		return queries.WithTx(tx).AddEntry(ctx, "a")
	})
}

func byEnt(ctx context.Context, client *ent.Client, key advisory.Key) (bool, error) {
	return xact.TryDo(ctx, client.BeginTx, key, func(ctx context.Context, tx *ent.Tx) error {
		return tx.Entry.Create().SetName("a").Exec(ctx)
	})
}

// What sqlc and ent generate fits: the lock and the work are one transaction, and a holder elsewhere
// excludes both.
func TestGeneratedCode(t *testing.T) {
	for _, driver := range []string{"postgres", "pgx"} {
		db := open(t, driver, pgtest.URL(t))
		if _, err := db.Exec("CREATE TABLE entries (name text NOT NULL)"); err != nil {
			t.Fatal(err)
		}
		key := advisory.Name("billing", "entries")
		for name, do := range map[string]func() (bool, error){
			"sqlc": func() (bool, error) { return bySQLC(t.Context(), db, sqlc.New(db), key) },
			"ent":  func() (bool, error) { return byEnt(t.Context(), ent.NewClient(db), key) },
		} {
			if _, err := db.Exec("DELETE FROM entries"); err != nil {
				t.Fatal(err)
			}
			err := xact.Do(t.Context(), db.BeginTx, key, func(context.Context, *sql.Tx) error {
				ran, err := do()
				if ran {
					err = errors.Join(err, errors.New("ran beside the holder"))
				}
				return err
			})
			if err != nil {
				t.Errorf("%s, %s: %v", driver, name, err)
			}
			ran, err := do()
			var n int
			if err := errors.Join(err, db.QueryRow("SELECT count(*) FROM entries").Scan(&n)); err != nil || !ran || n != 1 {
				t.Errorf("%s, %s: ran %t, %d entries, %v", driver, name, ran, n, err)
			}
		}
	}
}
