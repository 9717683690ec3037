package statement

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/dbconn"
	"github.com/pgadvisory/pgadvisory/internal/drivers"
	"github.com/pgadvisory/pgadvisory/internal/sqlprivate"
)

// Answer is the name of the first column of each answer, by which it is known.
const Answer = "pgadvisory"

var (
	// ErrBusy: rows are open.
	ErrBusy = errors.New("rows of an earlier query are open on this connection: close them first")
	// ErrOpenRows is the same on a connection that is out of step by it, and was made useless.
	ErrOpenRows = fmt.Errorf("%w; it cannot be used any more", ErrBusy)
)

const look = "SELECT $1::pg_catalog.int4 AS " + Answer

// look fails if what is left of an earlier query would be taken for the answer to a
// statement. A statement with a parameter is answered in another way than others.
//
// It asks the driver itself where it can. If pgx refuses, database/sql takes the connection
// for a bad one, and to close it waits for the rows.
func (s Session) look() error {
	var err error
	conn, ok := s.On.(dbconn.Rawer)
	if !ok {
		_, err = s.On.ExecContext(s.Ctx, look, 1)
		return s.likely(err)
	}
	raw := conn.Raw(func(driverConn any) error {
		if e, ok := driverConn.(driver.ExecerContext); ok {
			_, err = e.ExecContext(s.Ctx, look, []driver.NamedValue{{Ordinal: 1, Value: int64(1)}})
		}
		return nil
	})
	if raw != nil {
		return raw
	}
	return s.likely(err)
}

// answer returns how many rows the last result of text has, if that is the answer.
func (s Session) answer(text string) (n int64, err error) {
	rows, err := s.On.QueryContext(s.Ctx, text)
	if err != nil {
		return 0, s.likely(err)
	}
	ours := false
	for more := true; more; more = rows.NextResultSet() {
		ours, n = isAnswer(rows), 0
		for rows.Next() {
			n++
		}
	}
	rows.Close()
	switch err := rows.Err(); {
	case err != nil:
		return 0, s.likely(err)
	case !ours:
		return 0, s.outOfStep()
	case s.Ctx.Err() != nil:
		return 0, bound.ErrNoAnswer
	}
	return n, nil
}

func isAnswer(rows *sql.Rows) bool {
	columns, err := rows.Columns()
	return err == nil && len(columns) > 0 && columns[0] == Answer
}

// outOfStep has the driver notice that it is out of step, so that no statement of the
// caller's is answered by what was ours: also if the context has just ended.
func (s Session) outOfStep() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Ctx), bound.Abort)
	defer cancel()
	s.Ctx = ctx
	s.look()
	return ErrOpenRows
}

// likely adds to what a driver says while rows are open what that means.
func (s Session) likely(err error) error {
	switch {
	case err == nil || s.given == nil || errors.Is(err, ErrBusy):
	case s.given.driver == drivers.PGX, s.given.driver == drivers.Unknown && errors.Is(err, driver.ErrBadConn):
		// It sent nothing. In database/sql's words the connection is a bad one.
		if errors.Is(err, driver.ErrBadConn) && !sqlprivate.Idle(s.On) {
			return fmt.Errorf("%w, or it is lost: %w", ErrBusy, err)
		}
	case strings.Contains(err.Error(), "conn busy"), // pgx below another driver
		strings.Contains(err.Error(), "already a query being processed"): // newer versions of lib/pq
		return fmt.Errorf("%w: %w", ErrBusy, err)
	case strings.Contains(err.Error(), "pq: unexpected "), strings.Contains(err.Error(), "pq: unknown response "):
		return fmt.Errorf("%w (%w)", ErrOpenRows, err)
	}
	return err
}
