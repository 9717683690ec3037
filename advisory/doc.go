// Package advisory holds the words that every package of this module uses for
// PostgreSQL advisory locks: the [Key] of a lock, its [Mode], the options of a
// call, the interfaces [Lock] and [Locker], the errors, and what an [Observer]
// is told. It does no I/O.
//
// The locks themselves are taken by package sqlconn, on a connection, and by
// package xact, in a transaction.
//
// # Choosing a key
//
// A lock is a number that all who want it agree on. [Name] makes one of words,
// and is what to use unless there is a number already: [Int64] and [Pair] are
// for numbers of one's own, [HashText] and [HashTextExtended] for programs that
// let the server hash a text, and [ParseKey] reads any of them from a
// configuration.
//
// PostgreSQL keeps the locks of each database apart, but not those of the
// programs that share a database. Begin a name with what it is about, such as
// Name("billing", "invoices", customer).
package advisory
