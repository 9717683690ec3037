// Package interop computes the keys that other tools lock, so that a Go program can
// share a lock with them, and says of a key whose it is.
//
//	// No migration of golang-migrate's while this runs, and the other way round.
//	key := interop.GolangMigrate("app", "public", "schema_migrations")
//
// To exclude each other, both sides must lock the same key in the same database, and
// one of them exclusively. The keys are those of the releases that the functions name;
// what a later release of a tool locks is up to that tool.
package interop
