package goose_test

import (
	"database/sql"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/pressly/goose/v3"

	"github.com/pgadvisory/pgadvisory/adapt"
)

// newMigrations is the recipe of docs/recipes.md.
func newMigrations(db *sql.DB, migrations fs.FS) (*goose.Provider, error) {
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations,
		goose.WithSessionLocker(adapt.Goose(key)))
	return provider, err
}

func TestRecipe(t *testing.T) {
	db := open(t, "postgres")
	provider, err := newMigrations(db, fstest.MapFS{
		"1_accounts.sql": {Data: []byte("-- +goose Up\nCREATE TABLE accounts (id int);\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if ran, err := provider.Up(t.Context()); err != nil || len(ran) != 1 {
		t.Fatal(ran, err)
	}
	nothingIsLeft(t, db)
}
