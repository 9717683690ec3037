package pooler

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/bound"
)

// A server answers statements when the test lets it, with the given error.
type server struct {
	asked  chan string
	answer chan error
}

func newServer(t *testing.T) (*server, *sql.DB) {
	s := &server{asked: make(chan string, 10), answer: make(chan error, 10)}
	db := sql.OpenDB(s)
	t.Cleanup(func() { db.Close() })
	return s, db
}

func (s *server) Connect(context.Context) (driver.Conn, error) { return s, nil }
func (s *server) Driver() driver.Driver                        { return nil }
func (s *server) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (s *server) Begin() (driver.Tx, error)                    { return nil, errors.ErrUnsupported }
func (s *server) Close() error                                 { return nil }

func (s *server) ExecContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	if query == "SELECT 1" || query == "BEGIN" {
		return driver.RowsAffected(1), nil
	}
	s.asked <- query
	select {
	case err := <-s.answer:
		return driver.RowsAffected(1), err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// late has l send a statement, and ends its ctx before it is answered.
func (s *server) late(t *testing.T, l *Link) (rows int64, err error) {
	ctx, end := context.WithCancel(t.Context())
	go func() {
		<-s.asked
		end()
		time.Sleep(20 * time.Millisecond)
		s.answer <- nil
	}()
	return l.Exec(ctx, "SELECT late")
}

// A statement that has begun on a connection of others is not ended.
func TestLinkOnAConnectionOfOthers(t *testing.T) {
	s, db := newServer(t)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l := On(t.Context(), conn)
	if !l.Answered().IsZero() {
		t.Error("answered before anything was asked")
	}
	start := time.Now()
	if rows, err := s.late(t, l); rows != 1 || err != nil || l.Doubt() {
		t.Errorf("%d, %v, in doubt: %v", rows, err, l.Doubt())
	}
	if l.Answered().Before(start) {
		t.Error("not answered")
	}
	answered := l.Answered()
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := l.Exec(ended, "SELECT never"); !errors.Is(err, bound.ErrNoAnswer) || len(s.asked) != 0 || l.Doubt() || l.Answered() != answered {
		t.Errorf("%v, asked %d, in doubt: %v", err, len(s.asked), l.Doubt())
	}
	s.answer <- cancelled{}
	if _, err := l.Exec(t.Context(), "SELECT cancelled"); err != (cancelled{}) || !l.Doubt() {
		t.Errorf("%v, in doubt: %v", err, l.Doubt())
	}
}

// cancelled is the error of a statement that may have taken a lock before.
type cancelled struct{}

func (cancelled) Error() string    { return "canceling statement due to user request" }
func (cancelled) SQLState() string { return "57014" }

// A connection of its own is given up with a statement that does not end in time, and not with
// one that the server refuses.
func TestLinkOfItsOwn(t *testing.T) {
	s, db := newServer(t)
	l, err := Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	s.answer <- refused{}
	if _, err := l.Exec(t.Context(), "SELECT refused"); err != (refused{}) || l.Doubt() {
		t.Errorf("%v, in doubt: %v", err, l.Doubt())
	}
	l.Close()
	if n := db.Stats().OpenConnections; n != 1 {
		t.Errorf("%d connections", n)
	}
	if l, err = Open(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if _, err := s.late(t, l); !errors.Is(err, bound.ErrNoAnswer) || !l.Doubt() {
		t.Errorf("%v, in doubt: %v", err, l.Doubt())
	}
	l.Close()
	for db.Stats().OpenConnections > 0 {
		time.Sleep(time.Millisecond)
	}
}

// The error says why there is no connection, and that all are in use.
func TestFullPool(t *testing.T) {
	_, db := newServer(t)
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, end := context.WithTimeoutCause(t.Context(), time.Millisecond, errors.New("enough"))
	defer end()
	if _, err := Open(ctx, db); err == nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, bound.ErrNoAnswer) {
		t.Error(err)
	}
}
