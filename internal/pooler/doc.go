// Package pooler determines, from two connections of a pool, whether locks exclude between them.
// Above all it detects a proxy that shares one server session between several clients, statement by
// statement or transaction by transaction (PgBouncer's pool_mode transaction and statement).
// Session-level locks exclude nobody there.
//
// All statements are simple queries and answer by their row count. Behind such a proxy nothing else
// works, and a prepared statement would stay on a session of others. For the same reason no setting
// is used as a mark.
package pooler
