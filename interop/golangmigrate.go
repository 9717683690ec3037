package interop

import (
	"strings"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// GolangMigrate returns the key that golang-migrate locks in a database. Its current PostgreSQL
// drivers also include the schema and the table of the migrations, by default "public" (the current
// schema) and "schema_migrations". Older versions include less:
//
//	interop.GolangMigrate("app", "public", "schema_migrations")
func GolangMigrate(database string, schemaAndTable ...string) advisory.Key {
	names := append(schemaAndTable[:len(schemaAndTable):len(schemaAndTable)], database)
	return advisory.Int64(int64(crc(strings.Join(names, "\x00")) * 1486364155))
}
