package interop_test

import (
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/interop"
)

// The migrate command waits while a program holds its key. It is given the URL of the
// database, whose path is "/app".
func ExampleGolangMigrateURL() {
	key := interop.GolangMigrateURL("app", "public", "schema_migrations")
	fmt.Println(key)
	// Output: 1726534663
}

// A program that hands its *sql.DB to golang-migrate.
func ExampleGolangMigrate() {
	key := interop.GolangMigrate("app", "public", "schema_migrations")
	fmt.Println(key)
	// Output: 1787120056
}

func ExampleIdentify() {
	fmt.Println(interop.Identify(advisory.Int64(72707369), "app"))
	// Output: Prisma Migrate
}
