// Package lockfn is the one place that knows the SQL of advisory locks: the
// text of each statement, how to read its answer, and what an SQLSTATE means.
//
// Statements have no parameters, and answer by their row count. Drivers send
// such a statement through ExecContext as one simple query: one round trip for
// any key, with nothing prepared and nothing cached, right behind poolers too.
// Keys are integers, so there is nothing to inject. Every name is qualified
// with its schema, so that no search_path can put another in its place.
package lockfn
