package dbconn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"sync"
	"testing"
)

// A server has connections that answer a statement with exec's error, and keep what they were sent.
type server struct {
	exec func(ctx context.Context, c *conn, text string) error
	dial error

	mu    sync.Mutex
	conns []*conn
}

type conn struct {
	server *server
	number int // from 1, in the order in which they were opened

	sent   []string
	closed int
}

func (s *server) Driver() driver.Driver { return nil }

func (s *server) Connect(context.Context) (driver.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dial != nil {
		return nil, s.dial
	}
	c := &conn{server: s, number: len(s.conns) + 1}
	s.conns = append(s.conns, c)
	return c, nil
}

func (c *conn) ExecContext(ctx context.Context, text string, _ []driver.NamedValue) (driver.Result, error) {
	c.server.mu.Lock()
	c.sent = append(c.sent, text)
	c.server.mu.Unlock()
	if c.server.exec != nil {
		return driver.RowsAffected(1), c.server.exec(ctx, c, text)
	}
	return driver.RowsAffected(1), nil
}

func (c *conn) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return noRows{}, nil
}

func (c *conn) Close() error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.closed++
	return nil
}

func (c *conn) Prepare(string) (driver.Stmt, error) { return nil, driver.ErrSkip }
func (c *conn) Begin() (driver.Tx, error)           { return c, nil }
func (c *conn) Commit() error                       { return nil }
func (c *conn) Rollback() error                     { return nil }

type noRows struct{}

func (noRows) Columns() []string         { return []string{"n"} }
func (noRows) Close() error              { return nil }
func (noRows) Next([]driver.Value) error { return io.EOF }

// count returns how many connections were opened, and how many of these are open.
func (s *server) count() (opened, open int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if c.closed == 0 {
			open++
		}
	}
	return len(s.conns), open
}

// pool returns a pool with a number of idle connections.
func (s *server) pool(t *testing.T, idle int) *sql.DB {
	t.Helper()
	db := sql.OpenDB(s)
	t.Cleanup(func() { db.Close() })
	db.SetMaxIdleConns(10)
	var conns []*sql.Conn
	for range idle {
		conns = append(conns, pin(t, db))
	}
	for _, c := range conns {
		c.Close()
	}
	if n := db.Stats().Idle; n != idle {
		t.Fatalf("%d idle connections, want %d", n, idle)
	}
	return db
}

func pin(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// number returns which connection of the server it is.
func number(t *testing.T, pinned *sql.Conn) (n int) {
	t.Helper()
	if err := pinned.Raw(func(c any) error { n = c.(*conn).number; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}
