package interop

import "github.com/pgadvisory/pgadvisory/advisory"

// Identify returns a short name of the tool that locks key in the given database, such as "goose" or
// "golang-migrate (public.schema_migrations)". It returns "" for other keys. It cannot recognize keys
// that tools compute from a name. Treat a result for a small number as a hint, because other programs
// may have chosen the same number.
func Identify(key advisory.Key, database string) string {
	for _, known := range []struct {
		key  advisory.Key
		tool string
	}{
		{Goose(), "goose"},
		{GooseBefore326(), "goose before 3.26"},
		{Prisma(), "Prisma Migrate"},
		{Tern(), "tern"},
		{Atlas("atlas_migrate_execute"), "Atlas (migrate apply)"},
		{Atlas("atlas_migrate_diff"), "Atlas (migrate diff)"},
		{Atlas("atlas_lint"), "Atlas (migrate lint)"},
		{advisory.Int64(4820), "examples/reconcile of pgadvisory"},
		{advisory.Name("bank", "migrations"), "examples/migrate of pgadvisory"},
	} {
		if key == known.key {
			return known.tool
		}
	}
	if database == "" {
		return ""
	}
	switch key {
	case Rails(database):
		return "Rails migrations"
	case SQLxRustMigrate(database):
		return "SQLx for Rust (migrations)"
	}
	for _, keyOf := range []func(string, ...string) advisory.Key{GolangMigrate, GolangMigrateURL} {
		if key == keyOf(database) {
			return "golang-migrate (older versions)"
		}
		for _, schema := range []string{"public", database} {
			if key == keyOf(database, schema) {
				return "golang-migrate (older versions)"
			}
			for _, table := range []string{"schema_migrations", "migrations"} {
				if key == keyOf(database, schema, table) {
					return "golang-migrate (" + schema + "." + table + ")"
				}
			}
		}
	}
	return ""
}
