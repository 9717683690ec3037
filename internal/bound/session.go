package bound

import (
	"context"
	"database/sql"
)

// A Querier is a connection or a transaction.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// A Session sends statements with a context of [Context].
type Session struct {
	Ctx context.Context
	On  Querier
}

// Exec returns a statement's row count. An answer after the end of the context is
// no answer: a driver may report success on a dead connection.
func (s Session) Exec(text string) (rows int64, err error) {
	r, err := s.On.ExecContext(s.Ctx, text)
	if err == nil && s.Ctx.Err() != nil {
		err = ErrNoAnswer
	}
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// Query calls row for each row.
func (s Session) Query(text string, args []any, row func(*sql.Rows) error) error {
	rows, err := s.On.QueryContext(s.Ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
