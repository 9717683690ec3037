// Package advisory holds the words that every package of this module uses for
// PostgreSQL advisory locks: the [Key] of a lock, its [Mode], the options of a
// call, the interfaces [Lock] and [Locker], the errors, and what an [Observer]
// is told. It does no I/O.
//
// The locks themselves are taken by package sqlconn, on a connection, and by
// package xact, in a transaction.
package advisory
