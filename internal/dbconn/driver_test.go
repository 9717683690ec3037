package dbconn

import (
	"testing"
	"time"
)

func TestNothingIsDoneToAConnectionThatWasNotKept(t *testing.T) {
	var d Driver
	if err := d.Keep("no connection of a driver's"); err != nil {
		t.Error(err)
	}
	d.GiveUp()
	d.Close()
	if d.Valid() || d.Interruptible() {
		t.Errorf("valid: %v, interruptible: %v", d.Valid(), d.Interruptible())
	}
}

// The network connection is closed beneath the statement, which then returns.
func TestGiveUpAndCloseCloseTheKeptConnection(t *testing.T) {
	for name, end := range map[string]func(*Driver){"GiveUp": (*Driver).GiveUp, "Close": (*Driver).Close} {
		s := &server{}
		var d Driver
		if err := pin(t, s.pool(t, 1)).Raw(d.Keep); err != nil {
			t.Fatal(err)
		}
		end(&d)
		if s.conns[0].closed != 1 {
			t.Errorf("%s: closed %d times", name, s.conns[0].closed)
		}
	}
}

// A Locker keeps one connection after the other.
func TestLastConnectionIsKept(t *testing.T) {
	s := &server{}
	var d Driver
	first, last := &conn{server: s}, &conn{server: s}
	d.Keep(first)
	d.Keep(&validated{conn: last})
	d.Close()
	if first.closed != 0 || last.closed != 1 {
		t.Errorf("the first is closed %d times, the last %d times", first.closed, last.closed)
	}
}

type validated struct {
	*conn
	valid bool
}

func (v *validated) IsValid() bool { return v.valid }

func TestValidIsWhatTheDriverSays(t *testing.T) {
	var d Driver
	for _, valid := range []bool{true, false} {
		if d.Keep(&validated{&conn{}, valid}); d.Valid() != valid {
			t.Errorf("%v, the driver says %v", d.Valid(), valid)
		}
	}
	if d.Keep(&conn{}); d.Valid() {
		t.Error("a driver that does not say counts as valid")
	}
}

func TestOtherDriversAreNotInterruptible(t *testing.T) {
	var d Driver
	if d.Keep(&conn{}); d.Interruptible() {
		t.Error("what GiveUp does to an unknown driver is known")
	}
}

// These have the shape of pgx's connections. The suites of lost links have pgx itself.
type (
	wrapper[T any] struct{ pg T }
	pgConn[T any]  struct{ below T }
	network[T any] struct{ conn T }
	deadline       struct{ at time.Time }
)

func (w wrapper[T]) Conn() T                       { return w.pg }
func (p pgConn[T]) PgConn() T                      { return p.below }
func (n network[T]) Conn() T                       { return n.conn }
func (d *deadline) SetDeadline(at time.Time) error { d.at = at; return nil }

type withParameter struct{}

func (withParameter) Conn(int) *deadline { return &deadline{} }

func TestDeadlineIsFoundBelowPGX(t *testing.T) {
	link := &deadline{}
	d, ok := deadlineOf(wrapper[pgConn[network[*deadline]]]{pgConn[network[*deadline]]{network[*deadline]{link}}})
	if !ok || d != link {
		t.Fatalf("%v, %v", d, ok)
	}
	for name, conn := range map[string]any{
		"other":              &conn{},
		"no PgConn":          wrapper[*deadline]{link},
		"nil below PgConn":   wrapper[pgConn[*network[*deadline]]]{},
		"no network":         wrapper[pgConn[network[*deadline]]]{},
		"without a deadline": wrapper[pgConn[network[int]]]{},
		"with a parameter":   withParameter{},
	} {
		if d, ok := deadlineOf(conn); ok {
			t.Errorf("%s: found %v", name, d)
		}
	}
}
