package dbconn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/bound"
)

func TestDiscardedConnectionIsClosedAndLeavesThePool(t *testing.T) {
	s := &server{}
	db := s.pool(t, 1)
	conn := pin(t, db)
	if Discard(conn) {
		t.Error("said to have been closed before")
	}
	if n := db.Stats().OpenConnections; s.conns[0].closed != 1 || n != 0 {
		t.Errorf("closed %d times, %d in the pool", s.conns[0].closed, n)
	}
	if err := conn.Close(); !errors.Is(err, sql.ErrConnDone) {
		t.Errorf("Close: %v", err)
	}
	next := pin(t, db)
	defer next.Close()
	if n := number(t, next); n != 2 {
		t.Errorf("the pool gives out connection %d", n)
	}
}

// A pool below database/sql destroys only a connection that is inside a transaction.
func TestDiscardBeginsATransactionBeforeItCloses(t *testing.T) {
	s := &server{}
	s.exec = func(ctx context.Context, c *conn, _ string) error {
		if c.closed != 0 {
			t.Error("closed before")
		}
		if end, ok := ctx.Deadline(); !ok || time.Until(end) > bound.Abort {
			t.Errorf("the statement may take until %v", end)
		}
		return errors.New("no transaction for you")
	}
	db := s.pool(t, 1)
	Discard(pin(t, db))
	if c := s.conns[0]; !slices.Equal(c.sent, []string{"BEGIN"}) || c.closed != 1 {
		t.Errorf("sent %q, closed %d times", c.sent, c.closed)
	}
}

func TestDiscardOfAClosedConnectionTouchesNothing(t *testing.T) {
	s := &server{}
	db := s.pool(t, 1)
	conn := pin(t, db)
	conn.Close()
	if !Discard(conn) {
		t.Error("not said to have been closed before")
	}
	if c := s.conns[0]; len(c.sent) != 0 || c.closed != 0 {
		t.Errorf("sent %q, closed %d times: it may be somebody else's", c.sent, c.closed)
	}
}

type rawer func(f func(any) error) error

func (r rawer) Raw(f func(any) error) error { return r(f) }

// Only a connection that is known to have been closed counts as that.
func TestDiscardOfAConnectionThatCannotBeReached(t *testing.T) {
	for err, want := range map[error]bool{sql.ErrConnDone: true, driver.ErrBadConn: false, errors.New("wrapped away"): false} {
		if closed := Discard(rawer(func(func(any) error) error { return err })); closed != want {
			t.Errorf("%v: %v", err, closed)
		}
	}
}

// database/sql closes a connection only after its rows and transaction. The lock must go now.
func TestDiscardDoesNotWaitForRowsAndTransactions(t *testing.T) {
	for name, open := range map[string]func(*sql.Conn) (end func() error, err error){
		"rows": func(c *sql.Conn) (func() error, error) {
			rows, err := c.QueryContext(context.Background(), "SELECT 1")
			if err != nil {
				return nil, err
			}
			return rows.Close, nil
		},
		"a transaction": func(c *sql.Conn) (func() error, error) {
			tx, err := c.BeginTx(context.Background(), nil)
			if err != nil {
				return nil, err
			}
			return tx.Rollback, nil
		},
	} {
		s := &server{}
		db := s.pool(t, 1)
		conn := pin(t, db)
		end, err := open(conn)
		if err != nil {
			t.Fatal(err)
		}
		if Discard(conn) {
			t.Errorf("%s: said to have been closed before", name)
		}
		s.mu.Lock()
		if s.conns[0].closed == 0 {
			t.Errorf("%s: the network connection is open", name)
		}
		s.mu.Unlock()
		end()
		eventually(t, name+": the connection leaves the pool", func() bool { return db.Stats().OpenConnections == 0 })
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in a minute: %s", what)
		}
	}
}

func TestDestroyClosesAtOnce(t *testing.T) {
	s := &server{}
	db := s.pool(t, 1)
	if err := pin(t, db).Raw(Destroy); !errors.Is(err, driver.ErrBadConn) {
		t.Error(err)
	}
	if c := s.conns[0]; !slices.Equal(c.sent, []string{"BEGIN"}) || c.closed == 0 || db.Stats().OpenConnections != 0 {
		t.Errorf("sent %q, closed %d times, %d in the pool", c.sent, c.closed, db.Stats().OpenConnections)
	}
	// database/sql does not close one that is about to be closed.
	closing := &conn{server: s}
	if err := Destroy(closing); err != driver.ErrBadConn || closing.closed != 1 {
		t.Errorf("%v, closed %d times", err, closing.closed)
	}
	if err := Destroy(1); err != driver.ErrBadConn {
		t.Errorf("what is no connection: %v", err)
	}
}
