package dbconn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"slices"
	"testing"
	"time"
)

// dead answers as a connection does whose server has restarted.
func dead(first, last int, err error) func(context.Context, *conn, string) error {
	return func(_ context.Context, c *conn, _ string) error {
		if c.number >= first && c.number <= last {
			return err
		}
		return nil
	}
}

// leavesOpen waits until n connections are open. Take does not wait for the end of those that it
// destroys.
func (s *server) leavesOpen(t *testing.T, n int) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		_, open := s.count()
		if open == n {
			return
		}
		if time.Since(start) > 10*time.Second {
			t.Fatalf("%d connections are open, want %d", open, n)
		}
	}
}

func TestTakeGoesOnToAConnectionThatAnswers(t *testing.T) {
	for _, gone := range []error{driver.ErrBadConn, io.EOF, io.ErrUnexpectedEOF} {
		s := &server{exec: dead(1, 3, gone)}
		db := s.pool(t, 3)
		taken, err := Take(t.Context(), db, nil)
		if err != nil {
			t.Errorf("%v: %v", gone, err)
			continue
		}
		if n := number(t, taken); n != 4 {
			t.Errorf("%v: connection %d, want 4", gone, n)
		}
		s.leavesOpen(t, 1)
		taken.Close()
		if n := db.Stats().Idle; n != 1 {
			t.Errorf("%v: the connection did not go back to the pool: %d idle", gone, n)
		}
	}
}

// It tries each idle connection and one new one.
func TestTakeFromADeadServerEnds(t *testing.T) {
	for idle := range 4 {
		s := &server{exec: dead(1, 100, io.EOF)}
		db := s.pool(t, idle)
		if _, err := Take(t.Context(), db, nil); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		s.leavesOpen(t, 0)
		if opened, _ := s.count(); opened != idle+1 {
			t.Errorf("%d were idle: %d opened, want %d", idle, opened, idle+1)
		}
	}
}

func TestTakeReturnsAnErrorOfTheServerAtOnce(t *testing.T) {
	errServer := errors.New("permission denied")
	s := &server{exec: dead(1, 3, errServer)}
	db := s.pool(t, 3)
	if _, err := Take(t.Context(), db, nil); !errors.Is(err, errServer) {
		t.Error(err)
	}
	s.leavesOpen(t, 2)
	if opened, _ := s.count(); opened != 3 {
		t.Errorf("%d opened, want 3", opened)
	}
}

func TestTakeEndsWithCtx(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	s := &server{exec: func(context.Context, *conn, string) error { end(); return io.EOF }}
	db := s.pool(t, 3)
	if _, err := Take(ctx, db, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.leavesOpen(t, 2) // which were not tried
	if _, err := Take(ctx, db, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("with a ctx that has ended: %v", err)
	}
}

func TestTakeReturnsTheErrorOfADial(t *testing.T) {
	s := &server{dial: errors.New("no such host")}
	if _, err := Take(t.Context(), s.pool(t, 0), nil); err != s.dial {
		t.Error(err)
	}
}

// keep gets a new connection before a statement on it, which may not return. An idle one has a second.
func TestTakeKeepsANewConnectionFirst(t *testing.T) {
	s := &server{exec: dead(1, 2, driver.ErrBadConn)}
	db := s.pool(t, 2)
	var kept []int
	conn, err := Take(t.Context(), db, func(pinned *sql.Conn) error {
		return pinned.Raw(func(c any) error {
			kept = append(kept, c.(*conn).number)
			if sent := c.(*conn).sent; len(sent) != 0 {
				t.Errorf("%q was sent before", sent)
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if slices.Sort(kept); !slices.Equal(kept, []int{3}) {
		t.Errorf("kept %v", kept)
	}
}

func TestTakeDestroysAConnectionThatCannotBeKept(t *testing.T) {
	errKeep := errors.New("not kept")
	s := &server{}
	db := s.pool(t, 0)
	if _, err := Take(t.Context(), db, func(*sql.Conn) error { return errKeep }); err != errKeep {
		t.Error(err)
	}
	if _, open := s.count(); open != 0 || slices.Contains(s.conns[0].sent, "SELECT 1") {
		t.Errorf("%d are open, sent %q", open, s.conns[0].sent)
	}
}
