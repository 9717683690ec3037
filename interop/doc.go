// Package interop computes the keys that other tools lock, so that a Go program can share a lock with
// them. It also identifies the tool that uses a key.
//
//	// No migration of golang-migrate runs while this program holds the key, and vice versa.
//	key := interop.GolangMigrate("app", "public", "schema_migrations")
//
// To exclude each other, both sides must lock the same key in the same database, and at least one
// of them exclusively. Each function names the release of the tool that it matches. A later release
// may lock another key.
package interop
