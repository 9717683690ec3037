package locker_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/locker"
)

// The host of the pool's idle connections is gone without a word, and new connections lead to another
// host. The first that is silent takes a second, all others together one more.
func TestSilentIdleConnections(t *testing.T) {
	const idle = 6
	for name, mindless := range map[string]bool{"the driver heeds its context": false, "it does not": true} {
		t.Run(name, func(t *testing.T) {
			pooled(t, func(t *testing.T, f *fakeServer, db *sql.DB, l *locker.Locker) {
				f.mindless = mindless
				fill(t, db, idle)
				f.set(func() { f.silent = func(s *fakeStatement) bool { return s.pid <= idle } })
				start := time.Now()
				if err := l.Ping(context.Background()); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took > 2500*time.Millisecond {
					t.Errorf("a session was opened after %v", took)
				}
				time.Sleep(10 * time.Second) // in which the others are closed
				if n := db.Stats().OpenConnections; n != 1 {
					t.Errorf("%d connections are open", n)
				}
			})
		})
	}
}

// One idle connection is silent and the others answer. One of these is taken, and the rest stays idle.
func TestOneSilentIdleConnection(t *testing.T) {
	pooled(t, func(t *testing.T, f *fakeServer, db *sql.DB, l *locker.Locker) {
		fill(t, db, 6)
		var silent int // the first that is asked
		f.set(func() {
			f.silent = func(s *fakeStatement) bool {
				if silent == 0 {
					silent = s.pid
				}
				return s.pid == silent
			}
		})
		takes(t, "Ping", time.Second, func() {
			if err := l.Ping(context.Background()); err != nil {
				t.Fatal(err)
			}
		})
		time.Sleep(5 * time.Second)
		if st := db.Stats(); st.Idle != 4 || st.OpenConnections != 5 {
			t.Errorf("%+v", st)
		}
		if n := len(f.campaigns()); n != 6 {
			t.Errorf("%d connections were opened", n)
		}
	})
}

// An idle connection that answers, but late, is none that is dead as long as it takes less than a
// second. A new one may take as long as it needs to connect.
func TestSlowFirstAnswers(t *testing.T) {
	pooled(t, func(t *testing.T, f *fakeServer, db *sql.DB, l *locker.Locker) {
		fill(t, db, 2)
		f.set(func() { f.delay = 900 * time.Millisecond })
		if err := l.Ping(context.Background()); err != nil {
			t.Fatal(err)
		}
		if n := len(f.campaigns()); n != 2 {
			t.Errorf("%d connections were opened", n)
		}
	})
	pooled(t, func(t *testing.T, f *fakeServer, db *sql.DB, l *locker.Locker) {
		f.set(func() { f.delay = 2 * time.Second })
		if err := l.Ping(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
}

// fill leaves n idle connections in the pool.
func fill(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	db.SetMaxIdleConns(n)
	conns := make([]*sql.Conn, n)
	var errs error
	for i := range conns {
		var err error
		conns[i], err = db.Conn(t.Context())
		errs = errors.Join(errs, err)
	}
	if errs != nil {
		t.Fatal(errs)
	}
	for _, conn := range conns {
		conn.Close()
	}
}
