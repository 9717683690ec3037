package golangmigrate_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"testing"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database/postgres"
	"github.com/golang-migrate/migrate/v4/source"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// migrateAll is the recipe of docs/recipes.md.
func migrateAll(ctx context.Context, l *locker.Locker, migrationsDB *sql.DB, files source.Driver) error {
	err := l.Do(ctx, advisory.Name("billing", "migrations"), func(ctx context.Context) error {
		driver, err := postgres.WithInstance(migrationsDB, &postgres.Config{})
		if err != nil {
			return err
		}
		m, err := migrate.NewWithInstance("iofs", files, "postgres", driver)
		if err != nil {
			return err
		}
		defer m.Close()
		for ctx.Err() == nil { // which ends if the lock is lost
			if err := m.Steps(1); errors.Is(err, fs.ErrNotExist) {
				return nil // all have run
			} else if err != nil {
				return err
			}
		}
		return context.Cause(ctx)
	})
	return err
}

func TestRecipe(t *testing.T) {
	url := pgtest.URL(t)
	db := open(t, url)
	l := locker.New(db)
	defer l.Close()
	files, err := iofs.New(migrations(doNotWait), ".")
	if err != nil {
		t.Fatal(err)
	}
	if err := migrateAll(t.Context(), l, open(t, url), files); err != nil {
		t.Fatal(err)
	}
	migrated(t, db)
}
