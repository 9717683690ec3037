// Package sqlc has the shape of what sqlc generates for database/sql.
package sqlc

import (
	"context"
	"database/sql"
)

// A DBTX is a pool or a transaction.
type DBTX interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	PrepareContext(context.Context, string) (*sql.Stmt, error)
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

// New returns Queries on db.
func New(db DBTX) *Queries { return &Queries{db} }

// Queries has a method for each query.
type Queries struct{ db DBTX }

// WithTx returns Queries in tx.
func (q *Queries) WithTx(tx *sql.Tx) *Queries { return &Queries{tx} }

const addEntry = `INSERT INTO entries (name) VALUES ($1)`

// AddEntry is a query of the example.
func (q *Queries) AddEntry(ctx context.Context, name string) error {
	_, err := q.db.ExecContext(ctx, addEntry, name)
	return err
}
