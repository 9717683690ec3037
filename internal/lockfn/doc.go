// Package lockfn contains all SQL of advisory locks: the text of each statement, how to read its
// answer, and what an SQLSTATE means.
//
// Statements have no parameters, and answer by their row count. Drivers send such a statement
// through ExecContext as one simple query. It takes one round trip for any key, prepares and caches
// nothing, and works behind poolers too. Keys are integers, so there is nothing to inject. Every
// name is qualified with its schema, so no search_path can replace it.
package lockfn
