package statement

import (
	"database/sql"
	"errors"
	"slices"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/drivers"
)

// numbers returns a function for Query that keeps the first column of each row.
func numbers(got *[]int) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		*got = append(*got, 0)
		return rows.Scan(&(*got)[len(*got)-1])
	}
}

func TestQueryCallsRowForEach(t *testing.T) {
	for name, kind := range kinds {
		s := &server{answers: []answer{ours(3)}}
		session := s.given(t, kind)
		var got []int
		if err := session.Query(try, nil, numbers(&got)); err != nil || !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if rows, err := session.On.QueryContext(t.Context(), try); err != nil {
			t.Errorf("%s: the connection is not free after a query: %v", name, err)
		} else {
			rows.Close()
		}
	}
}

// A statement with parameters is answered in another way, which nothing can be mistaken for. On a
// connection of one's own there is nothing to mistake.
func TestColumnIsCheckedOnlyWhereTheAnswerIsInDoubt(t *testing.T) {
	other := answer{results: []result{{column: "pid", rows: 2}}}
	for name, c := range map[string]struct {
		own  bool
		args []any
		err  error
	}{
		"no parameters": {err: ErrOpenRows},
		"parameters":    {args: []any{4820}},
		"one's own":     {own: true},
	} {
		s := &server{answers: []answer{other}}
		session := s.given(t, drivers.PQ)
		if c.own {
			session = Session{Ctx: session.Ctx, On: session.On}
		}
		var got []int
		err := session.Query(try, c.args, numbers(&got))
		if err != c.err || (err == nil) != (len(got) == 2) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestQueryReturnsErrors(t *testing.T) {
	errServer, errRow := errors.New("the server's"), errors.New("row's")
	for name, c := range map[string]struct {
		answer answer
		row    error
		want   error
		calls  int
	}{
		"at once":   {answer: answer{err: errServer}, want: errServer},
		"after two": {answer: answer{results: []result{{column: Answer, rows: 2, err: errServer}}}, want: errServer, calls: 2},
		"of row":    {answer: ours(3), row: errRow, want: errRow, calls: 1},
	} {
		s := &server{answers: []answer{c.answer}}
		session := s.given(t, drivers.PGX)
		calls := 0
		if err := session.Query(try, nil, func(*sql.Rows) error { calls++; return c.row }); err != c.want || calls != c.calls {
			t.Errorf("%s: %v after %d rows", name, err, calls)
		}
		if conn := session.On.(*sql.Conn); conn.Close() != nil || s.closed {
			t.Errorf("%s: rows are open, or the connection was closed", name)
		}
	}
}

func TestQueryLooksFirstWhileRowsMayBeOpen(t *testing.T) {
	s := &server{answers: []answer{ours(1)}}
	session := s.withRows(t, drivers.PGX)
	if err := session.Query(try, nil, func(*sql.Rows) error { return nil }); err != nil {
		t.Error(err)
	}
	s.got(t, 1, try)
}
