// Package pooler finds out, from two connections of a pool, whether locks exclude
// between them: above all, whether there is a proxy in between that hands one session of the
// server to several clients, statement by statement or transaction by transaction
// (PgBouncer's pool_mode transaction and statement). Session-level locks are fake there.
//
// All statements go as simple queries and answer by their row count, since behind such a
// proxy nothing else works, and a prepared statement would be left on a session of others.
// For that reason too no setting is used as a mark.
package pooler
