package interop_test

import (
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/interop"
)

func TestIdentify(t *testing.T) {
	for _, test := range []struct {
		key      advisory.Key
		database string
		want     string
	}{
		{interop.Goose(), "app", "goose"},
		{interop.GooseBefore326(), "", "goose before 3.26"},
		{interop.GolangMigrate("app", "public", "schema_migrations"), "app", "golang-migrate (public.schema_migrations)"},
		{interop.GolangMigrate("app", "app", "migrations"), "app", "golang-migrate (app.migrations)"},
		{interop.GolangMigrate("app"), "app", "golang-migrate (older versions)"},
		{interop.GolangMigrate("app", "public"), "app", "golang-migrate (older versions)"},
		{interop.GolangMigrate("app", "public", "schema_migrations"), "other", ""},
		{interop.GolangMigrateURL("app", "public", "schema_migrations"), "app", "golang-migrate (public.schema_migrations)"},
		{interop.GolangMigrateURL("app", "public"), "app", "golang-migrate (older versions)"},
		{interop.GolangMigrateURL("app"), "app", "golang-migrate (older versions)"},
		{interop.Atlas("atlas_migrate_diff"), "app", "Atlas (migrate diff)"},
		{interop.Atlas("atlas_lint"), "app", "Atlas (migrate lint)"},
		{interop.Rails("app"), "app", "Rails migrations"},
		{interop.Rails("app"), "", ""},
		{interop.SQLxRustMigrate("app"), "app", "SQLx for Rust (migrations)"},
		{interop.Prisma(), "app", "Prisma Migrate"},
		{interop.Tern(), "app", "tern"},
		{interop.Atlas("atlas_migrate_execute"), "app", "Atlas (migrate apply)"},
		{advisory.Int64(4820), "app", "examples/reconcile of pgadvisory"},
		{advisory.Name("bank", "migrations"), "app", "examples/migrate of pgadvisory"},
		{advisory.Pair(0, 4820), "app", ""},
		{advisory.Int64(1), "app", ""},
		{advisory.Key{}, "app", ""},
	} {
		if got := interop.Identify(test.key, test.database); got != test.want {
			t.Errorf("Identify(%v, %q) = %q, want %q", test.key, test.database, got, test.want)
		}
	}
}
