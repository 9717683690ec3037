// Package advisory defines what all packages of this module share for PostgreSQL advisory locks: the
// [Key] of a lock, its [Mode], the options of a call, the interfaces [Lock] and [Locker], the errors,
// and the [Event] that an [Observer] receives. It does no I/O.
//
// Package sqlconn takes locks on a connection, package xact in a transaction, and package locker on
// connections of its own.
//
// # Choosing a key
//
// A lock is a number that all its users agree on. There are four ways to choose it:
//
//   - [Name] computes it from words. Use it unless the number exists already.
//   - [Int64] and [Pair] take a number that you choose.
//   - [HashText] and [HashTextExtended] match programs that let the server hash a text.
//   - [ParseKey] reads any of these forms from a configuration.
//
// PostgreSQL separates the locks of different databases, but not those of programs that share a
// database. Begin a name with its subject, such as Name("billing", "invoices", customer).
package advisory
