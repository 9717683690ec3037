// Package interop computes the keys that other tools lock, so that a Go program can share a lock with
// them. It also identifies the tool that uses a key.
//
//	// No migration by the migrate command while this runs, and the other way round.
//	key := interop.GolangMigrateURL("app", "public", "schema_migrations")
//
// To exclude each other, both sides must lock the same key in the same database, and
// one of them exclusively. The keys are those of the releases that the functions name;
// what a later release of a tool locks is up to that tool.
//
// Names are taken byte for byte, as the tools take them in UTF-8: upper and lower case, spaces at
// the ends and the forms that Unicode has for one character are different names. The name of a
// database is the one that current_database() returns, unless the function says otherwise.
package interop
