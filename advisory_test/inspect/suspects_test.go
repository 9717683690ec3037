package inspect_test

import (
	"context"
	sqldriver "database/sql/driver"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/inspect"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// suspects lists those of at least two seconds.
func suspects(t testing.TB, db inspect.DB) []inspect.Suspect {
	t.Helper()
	list, err := inspect.Suspects(context.Background(), db, inspect.After(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// suspectOf waits for the suspect that a session is.
func suspectOf(t testing.TB, db inspect.DB, kind inspect.Kind, pid int) (s inspect.Suspect) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("pid %d is suspect of %q", pid, kind), func() bool {
		list := suspects(t, db)
		i := slices.IndexFunc(list, func(s inspect.Suspect) bool { return s.PID == pid && s.Kind == kind })
		if i >= 0 {
			s = list[i]
		}
		return i >= 0
	})
	return s
}

// What an incident looks like is told, with what to do; and doing it helps.
func TestSuspects(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t, "max_prepared_transactions=5", "deadlock_timeout=1h")
	harness.AtOnce(t, func(all *harness.Together) {
		scene := func(name string, test func(t *testing.T, p *harness.Pool)) {
			all.Start(name, func(t *testing.T) { test(t, harness.Drivers[0].Open(t, server.Database(t))) })
		}
		scene("leak into a pool", func(t *testing.T, p *harness.Pool) {
			conn := p.NewConn(t)
			pid := harness.Ask[int](t, conn, "SELECT pg_backend_pid()")
			start := time.Now()
			harness.DoSQL(t, conn, "SELECT pg_advisory_lock(1), pg_advisory_lock(2), pg_advisory_lock_shared(3, 4)")
			waiter := blockOn(t, p, advisory.Int64(2), advisory.Exclusive)
			if list := suspects(t, p); len(list) != 0 && time.Since(start) < 2*time.Second {
				t.Errorf("at once: %v", list)
			}
			s := suspectOf(t, p, inspect.Leak, pid)
			if len(s.Locks) != 3 || len(s.Waiters) != 1 || s.Waiters[0].PID != waiter || !strings.Contains(s.Why, "keys 1, 2, 3:4 (shared)") {
				t.Errorf("%+v", s)
			}
			harness.DoSQL(t, p, s.SQL)
			harness.Eventually(t, "the waiter has it", func() bool {
				locks := inspectLocks(t, p)
				return len(locks) == 1 && locks[0].PID == waiter && locks[0].Granted
			})
		})
		scene("one key, and what the session does next", func(t *testing.T, p *harness.Pool) {
			conn := p.NewConn(t)
			pid := harness.Ask[int](t, conn, "SELECT pg_backend_pid()")
			harness.TryLock(t, conn, harness.Key)
			s := suspectOf(t, p, inspect.Idle, pid)
			// Meanwhile the session has gone on.
			harness.DoSQL(t, conn, "SELECT 1")
			harness.DoSQL(t, p, s.SQL)
			harness.Unlock(t, conn, harness.Key)
		})
		scene("idle in transaction", func(t *testing.T, p *harness.Pool) {
			conn := p.NewConn(t)
			pid := harness.Ask[int](t, conn, "SELECT pg_backend_pid()")
			harness.DoSQL(t, conn, "BEGIN")
			harness.DoSQL(t, conn, "SELECT pg_advisory_xact_lock(1)")
			s := suspectOf(t, p, inspect.IdleInTransaction, pid)
			harness.DoSQL(t, p, s.SQL)
			p.NoLocks(t)
		})
		scene("prepared transaction", func(t *testing.T, p *harness.Pool) {
			conn := p.NewConn(t)
			harness.DoSQL(t, conn, "BEGIN")
			harness.DoSQL(t, conn, "SELECT pg_advisory_xact_lock(1)")
			harness.DoSQL(t, conn, `PREPARE TRANSACTION 'it''s \here'`)
			waiter := blockOn(t, p, advisory.Int64(1), advisory.Exclusive)
			s := suspectOf(t, p, inspect.Prepared, 0)
			if len(s.Waiters) != 1 || s.Waiters[0].PID != waiter {
				t.Errorf("%+v", s)
			}
			harness.DoSQL(t, p, s.SQL)
			harness.Eventually(t, "the waiter has it", func() bool { locks := inspectLocks(t, p); return len(locks) == 1 && locks[0].Granted })
		})
		scene("client that does not read", func(t *testing.T, p *harness.Pool) {
			conn := p.NewConn(t)
			pid := harness.Ask[int](t, conn, "SELECT pg_backend_pid()")
			rows, err := conn.QueryContext(context.Background(), "SELECT repeat('x', 100000), pg_advisory_lock(1) FROM generate_series(1, 2000)")
			if err != nil {
				t.Fatal(err)
			}
			suspectOf(t, p, inspect.Unread, pid)
			rows.Close()
		})
		scene("long wait behind one who works", func(t *testing.T, p *harness.Pool) {
			conn := p.NewConn(t)
			pid := harness.Ask[int](t, conn, "SELECT pg_backend_pid()")
			harness.TryLock(t, conn, harness.Key)
			ctx, end := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() {
				defer close(done)
				conn.ExecContext(ctx, "SELECT pg_sleep(600)")
			}()
			defer func() { end(); <-done }()
			blockOn(t, p, harness.Key, advisory.Exclusive)
			s := suspectOf(t, p, inspect.LongWait, pid)
			if len(s.Locks) != 1 || s.Locks[0].PID != pid || len(s.Waiters) != 1 {
				t.Errorf("%+v", s)
			}
			if told := harness.Ask[int](t, p, "SELECT pid FROM ("+strings.TrimSuffix(s.SQL, ";")+") s"); told != pid {
				t.Error(told)
			}
		})
		scene("circle", func(t *testing.T, p *harness.Pool) {
			a, b := p.NewConn(t), p.NewConn(t)
			harness.TryLock(t, a, advisory.Int64(1))
			harness.TryLock(t, b, advisory.Int64(2))
			wait := func(conn sqlconn.Conn, k int) chan error {
				done := make(chan error, 1)
				go func() {
					_, err := conn.ExecContext(context.Background(), fmt.Sprintf("SELECT pg_advisory_lock(%d)", k))
					done <- err
				}()
				return done
			}
			first, second := wait(a, 2), wait(b, 1)
			var s inspect.Suspect
			harness.Eventually(t, "the circle is seen", func() bool {
				list := suspects(t, p)
				if len(list) == 1 {
					s = list[0]
				}
				return s.Kind == inspect.Circle
			})
			if len(s.Locks) != 2 || len(s.Waiters) != 2 {
				t.Errorf("%+v", s)
			}
			harness.DoSQL(t, p, s.SQL)
			// One wait is cancelled; its session ends with its locks, and the other goes on.
			select {
			case err := <-first:
				if err == nil {
					t.Error("the first goes on first")
				}
				a.Raw(func(any) error { return sqldriver.ErrBadConn })
				if err := <-second; err != nil {
					t.Error(err)
				}
			case err := <-second:
				if err == nil {
					t.Error("the second goes on first")
				}
				b.Raw(func(any) error { return sqldriver.ErrBadConn })
				if err := <-first; err != nil {
					t.Error(err)
				}
			}
		})
		// By design it keeps many keys on an idle session, and has waits of its own.
		scene("a Locker is no suspect", func(t *testing.T, p *harness.Pool) {
			locker, other := p.Locker(t), p.Locker(t)
			for i := range 50 {
				harness.LockerTry(t, locker, advisory.Pair(1, int32(i)))
			}
			ctx, end := context.WithCancel(context.Background())
			defer end()
			go other.Lock(ctx, advisory.Pair(1, 7))
			inARow := 0
			for start := time.Now(); time.Since(start) < 5*time.Second; time.Sleep(50 * time.Millisecond) {
				list := slices.DeleteFunc(suspects(t, p), func(s inspect.Suspect) bool {
					return s.Kind == inspect.LongWait // a slice may be longer than what is asked for here
				})
				if inARow++; len(list) == 0 {
					inARow = 0
				}
				if inARow > 2 { // a machine that stood still may look like a Locker that does
					t.Fatalf("%v", list)
				}
			}
		})
	})
}

// A role that may not see enough is told so, and one without track_activities.
func TestSuspectsThatCannotBeJudged(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t)
	roleURL := harness.Unprivileged(t, server)
	u := mustURL(t, server.URL())
	u.Path = mustURL(t, roleURL).Path
	super := harness.Drivers[0].Open(t, u.String())
	harness.TryLock(t, super.NewConn(t), harness.Key)
	p := harness.Drivers[0].Open(t, roleURL)
	list := suspects(t, p)
	if len(list) != 1 || list[0].Kind != inspect.Unseen || len(list[0].Locks) != 1 {
		t.Fatalf("%v", list)
	}
	harness.DoSQL(t, super, list[0].SQL)
	p = harness.Drivers[0].Open(t, roleURL) // a session that is open sees more, too, but not at once
	harness.Eventually(t, "it is seen", func() bool {
		list := suspects(t, p)
		return len(list) == 1 && list[0].Kind == inspect.Idle
	})
	untracked := super.NewConn(t)
	harness.DoSQL(t, untracked, "SET track_activities = off")
	harness.TryLock(t, untracked, advisory.Int64(1))
	harness.Eventually(t, "the untracked one is told", func() bool {
		return slices.ContainsFunc(suspects(t, p), func(s inspect.Suspect) bool {
			return s.Kind == inspect.Unseen && strings.Contains(s.Why, "track_activities")
		})
	})
}

func TestSuspectsOnAStandby(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	p := harness.Drivers[0].Open(t, harness.Standby(t).URL())
	if list := suspects(t, p); len(list) != 0 {
		t.Errorf("without locks: %v", list)
	}
	if !harness.Ask[bool](t, p.NewConn(t), "SELECT pg_try_advisory_lock(4820)") {
		t.Fatal("the standby does not grant the lock")
	}
	list := suspects(t, p)
	if len(list) == 0 || list[0].Kind != inspect.Standby || len(list[0].Locks) != 1 || list[0].Locks[0].Key != harness.Key {
		t.Errorf("%v", list)
	}
	if s := answerJSON(t, inspect.Handler(p)); !s.InRecovery || len(s.Suspects) == 0 {
		t.Errorf("%+v", s)
	}
}

func TestSuspectsRefuseBadOptions(t *testing.T) {
	for _, o := range []inspect.SuspectOption{nil, inspect.After(time.Second), inspect.After(-1)} {
		if _, err := inspect.Suspects(context.Background(), nil, o); err == nil {
			t.Errorf("%v: no error", o)
		}
	}
}
