package interop

import (
	"strings"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// GolangMigrate returns the key that golang-migrate locks in a database when a program gives it
// a *sql.DB (WithInstance) and no DatabaseName. For the migrate command, and for migrate.New
// and the like, which are given a URL, see [GolangMigrateURL].
//
// From version 4.15 on the key is made of the schema and the table of the migrations too, by
// default the current schema, which is usually "public", and "schema_migrations". Versions 4.1
// to 4.14 leave out the table, earlier ones the schema too:
//
//	interop.GolangMigrate("app", "public", "schema_migrations")
//	interop.GolangMigrate("app", "public") // 4.1 to 4.14
//	interop.GolangMigrate("app")           // before 4.1
//
// A program that sets DatabaseName gives what it sets as database. The pgx driver takes no
// advisory lock where its LockStrategy is "table".
func GolangMigrate(database string, schemaAndTable ...string) advisory.Key {
	names := append(schemaAndTable[:len(schemaAndTable):len(schemaAndTable)], database)
	return advisory.Int64(int64(crc(strings.Join(names, "\x00")) * 1486364155))
}

// GolangMigrateURL returns the key that golang-migrate locks when it is given a URL whose path
// names the database: the migrate command, migrate.New and Open of its drivers. They take the
// whole path for the database's name, so the key is of "/app" and not of "app", and does not
// exclude the key of [GolangMigrate]. With a URL that has no path they lock the latter.
//
//	interop.GolangMigrateURL("app", "public", "schema_migrations")
func GolangMigrateURL(database string, schemaAndTable ...string) advisory.Key {
	return GolangMigrate("/"+database, schemaAndTable...)
}
