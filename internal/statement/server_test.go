package statement

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/drivers"
	"github.com/pgadvisory/pgadvisory/internal/sqlprivate"
)

// A server is one connection that answers each statement with the next of its answers, and keeps
// what it was sent. A look has answers of its own.
type server struct {
	answers []answer
	looks   []error // the last one for all that follow
	sent    []string
	looked  int
	closed  bool
}

// An answer is a number of affected rows, or results with a column each and some rows.
type answer struct {
	affected int64
	results  []result
	err      error
	during   func() // the statement
}

type result struct {
	column string
	rows   int
	err    error // after the rows
}

// ours is the answer of a SELECT with some rows to a query, and to a statement.
func ours(rows int) answer {
	return answer{affected: int64(rows), results: []result{{column: Answer, rows: rows}}}
}

func (s *server) Connect(context.Context) (driver.Conn, error) { return s, nil }
func (s *server) Driver() driver.Driver                        { return nil }
func (s *server) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (s *server) Close() error                                 { s.closed = true; return nil }
func (s *server) Begin() (driver.Tx, error)                    { return s, nil }
func (s *server) Commit() error                                { return nil }
func (s *server) Rollback() error                              { return nil }

func (s *server) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	if text == look {
		if len(args) != 1 || args[0].Value != int64(1) || args[0].Ordinal != 1 {
			return nil, errors.New("the look has other parameters")
		}
		if ctx.Err() != nil { // it is not sent
			return nil, ctx.Err()
		}
		s.looked++
		if len(s.looks) == 0 {
			return driver.RowsAffected(1), nil
		}
		return driver.RowsAffected(1), s.looks[min(s.looked, len(s.looks))-1]
	}
	a := s.next(text)
	return driver.RowsAffected(a.affected), a.err
}

func (s *server) QueryContext(_ context.Context, text string, _ []driver.NamedValue) (driver.Rows, error) {
	a := s.next(text)
	if a.err != nil {
		return nil, a.err
	}
	return &rows{rest: a.results}, nil
}

func (s *server) next(text string) (a answer) {
	s.sent = append(s.sent, text)
	if len(s.answers) > 0 {
		a, s.answers = s.answers[0], s.answers[1:]
	}
	if a.during != nil {
		a.during()
	}
	return a
}

type rows struct {
	rest []result
	read int
}

func (r *rows) Columns() []string      { return []string{r.rest[0].column} }
func (r *rows) Close() error           { return nil }
func (r *rows) HasNextResultSet() bool { return len(r.rest) > 1 }
func (r *rows) NextResultSet() error {
	if !r.HasNextResultSet() {
		return io.EOF
	}
	r.rest, r.read = r.rest[1:], 0
	return nil
}

func (r *rows) Next(dest []driver.Value) error {
	if r.read == r.rest[0].rows {
		if err := r.rest[0].err; err != nil {
			return err
		}
		return io.EOF
	}
	r.read++
	dest[0] = int64(r.read)
	return nil
}

// pin returns a connection to the server.
func (s *server) pin(t *testing.T) *sql.Conn {
	t.Helper()
	db := sql.OpenDB(s)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); db.Close() })
	return conn
}

// given returns a session on a caller's connection to the server, on which rows are not open.
func (s *server) given(t *testing.T, kind drivers.Kind) Session {
	t.Helper()
	return Given(t.Context(), s.pin(t), kind)
}

// withRows returns a session on a caller's connection on which rows are open. Nothing that the server
// was sent so far is kept.
func (s *server) withRows(t *testing.T, kind drivers.Kind) Session {
	t.Helper()
	conn := s.pin(t)
	rest := s.answers
	s.answers = []answer{{results: []result{{column: "id", rows: 3}}}}
	rows, err := conn.QueryContext(t.Context(), "SELECT id FROM jobs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rows.Close() })
	if sqlprivate.Idle(conn) {
		t.Fatal("the connection is idle while rows are open")
	}
	s.answers, s.sent = rest, nil
	return Given(t.Context(), conn, kind)
}

// quiet has the session's ctx end without the driver's and database/sql's notice, when end is called.
func quiet(t *testing.T, s Session) (_ Session, end func()) {
	ctx, end := context.WithCancel(t.Context())
	t.Cleanup(end)
	s.Ctx = bound.Quiet(ctx)
	return s, end
}

// got checks what the server was sent, and how many looks.
func (s *server) got(t *testing.T, looks int, texts ...string) {
	t.Helper()
	if s.looked != looks || strings.Join(s.sent, "; ") != strings.Join(texts, "; ") {
		t.Errorf("%d looks, sent %q; want %d, %q", s.looked, s.sent, looks, texts)
	}
}
