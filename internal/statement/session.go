// Package statement sends statements on a connection or in a transaction, and reads their answers.
//
// An answer is the row count of a SELECT whose column has a name of the library's own. On what a
// caller gave, rows of an earlier query may be open, and a driver may take them for the answer: a
// [Session] that [Given] made checks for that first.
package statement

import (
	"context"
	"database/sql"

	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/drivers"
	"github.com/pgadvisory/pgadvisory/internal/sqlprivate"
)

// A Querier is a connection or a transaction.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// A Session sends statements with a context of [bound.Context]. One that is not made by [Given]
// is on a connection that nobody else has.
type Session struct {
	Ctx context.Context
	On  Querier

	given *givenTo
}

type givenTo struct {
	driver drivers.Kind
	looked bool
}

// Given returns a Session on a connection or transaction of a caller's, with driver below,
// who may have left rows of an earlier query open on it.
func Given(ctx context.Context, on Querier, driver drivers.Kind) Session {
	return Session{ctx, on, &givenTo{driver: driver}}
}

// Exec returns the row count of a SELECT, the last one of text, whose column is named
// [Answer]. An answer after the end of the context is no answer: a driver may report
// success on a dead connection.
//
// While rows of an earlier query are open, pgx refuses a statement, and lib/pq takes what is
// left of them for its answer: the row count may be that of an UPDATE of the caller's. So
// where rows may be open no more is sent than a look, and what lib/pq says is looked at twice.
func (s Session) Exec(text string) (rows int64, err error) {
	if err := s.ready(); err != nil {
		return 0, err
	}
	if s.given != nil && s.given.driver == drivers.PQ {
		return s.answer(text)
	}
	return s.exec(text)
}

// ready looks, once, where rows may be open.
func (s Session) ready() error {
	if s.given == nil || s.given.looked || sqlprivate.Idle(s.On) {
		return nil
	}
	err := s.look()
	s.given.looked = err == nil
	return err
}

// Run sends a statement that has no answer. It is not to be a call's first one.
func (s Session) Run(text string) error {
	_, err := s.exec(text)
	return err
}

func (s Session) exec(text string) (rows int64, err error) {
	r, err := s.On.ExecContext(s.Ctx, text)
	if err == nil && s.Ctx.Err() != nil {
		err = bound.ErrNoAnswer
	}
	if err != nil {
		return 0, s.likely(err)
	}
	return r.RowsAffected()
}

// Literal reports whether a query is one round trip without parameters, and two with them.
func (s Session) Literal() bool { return s.given != nil && s.given.driver == drivers.PQ }

// Query calls row for each row. If there are no args, the first column is named [Answer].
func (s Session) Query(text string, args []any, row func(*sql.Rows) error) error {
	if err := s.ready(); err != nil {
		return err
	}
	rows, err := s.On.QueryContext(s.Ctx, text, args...)
	if err != nil {
		return s.likely(err)
	}
	defer rows.Close()
	if s.given != nil && len(args) == 0 && !isAnswer(rows) {
		rows.Close()
		return s.outOfStep()
	}
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return s.likely(err)
	}
	return nil
}
