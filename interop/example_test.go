package interop_test

import (
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/interop"
)

// Migrations of golang-migrate wait while a program holds its key.
func ExampleGolangMigrate() {
	key := interop.GolangMigrate("app", "public", "schema_migrations")
	fmt.Println(key)
	// Output: 1787120056
}

func ExampleIdentify() {
	fmt.Println(interop.Identify(advisory.Int64(72707369), "app"))
	// Output: Prisma Migrate
}
