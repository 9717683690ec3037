package pooler_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/pgbouncer"
	"github.com/pgadvisory/pgadvisory/locker"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// An occupant keeps a pooler's session from others, by an open transaction on it.
func occupant(t testing.TB, p *harness.Pool, pid int) *sql.Tx {
	t.Helper()
	var others []*sql.Tx
	defer func() {
		for _, tx := range others {
			tx.Rollback()
		}
	}()
	for range 10 {
		tx, err := p.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tx.Rollback() })
		if harness.SessionOf(t, tx) == pid {
			return tx
		}
		others = append(others, tx)
	}
	t.Fatal("the session is not to be had")
	return nil
}

// holderPID is the pid of the session that holds the only advisory lock.
func holderPID(t testing.TB, direct *harness.Pool) int {
	t.Helper()
	return harness.Ask[int](t, direct, "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
}

// A release on another session than the one that was granted the lock never counts as one.
func TestUnlockNoticesAChangedSession(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	for _, d := range harness.Drivers {
		t.Run(d.Name, func(t *testing.T) {
			serverURL := pgtest.URL(t)
			how := harness.Pooling{Options: pgbouncer.Options{Mode: pgbouncer.Transaction, PoolSize: 2}, Clients: 0}
			t.Run("on a connection", func(t *testing.T) {
				url := how.Start(t, serverURL)
				p, direct, busy := d.Open(t, url), harness.Drivers[0].Open(t, serverURL), harness.Drivers[0].Open(t, url)
				conn := p.NewConn(t)
				if ok, err := sqlconn.TryLock(t.Context(), conn, harness.Key, sqlconn.SessionPooler()); !ok || err != nil { // which is false
					t.Fatalf("%v, %v", ok, err)
				}
				holder := holderPID(t, direct)
				tx := occupant(t, busy, holder)
				if err := sqlconn.Unlock(t.Context(), conn, harness.Key); !errors.Is(err, advisory.ErrNotHeld) {
					t.Errorf("Unlock on another session: %v", err)
				}
				if held, _ := direct.Locks(t); held != 1 {
					t.Errorf("%d locks are held: there was nothing to notice", held)
				}
				tx.Rollback()
			})
			t.Run("of a Locker", func(t *testing.T) {
				url := how.Start(t, serverURL)
				p, direct, busy := d.Open(t, url), harness.Drivers[0].Open(t, serverURL), harness.Drivers[0].Open(t, url)
				first, err := busy.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				l := p.Locker(t, locker.WithoutServerCheck()) // on the other session
				lock, ok := harness.LockerTry(t, l, harness.Key)
				if !ok {
					t.Fatal("not granted")
				}
				holder := holderPID(t, direct)
				first.Rollback()
				occupant(t, busy, holder)
				if err := lock.Unlock(); !errors.Is(err, advisory.ErrLost) {
					t.Errorf("Unlock on another session: %v", err)
				} else {
					t.Log(err)
				}
				if held, _ := direct.Locks(t); held != 1 {
					t.Errorf("%d locks are held: there was nothing to notice", held)
				}
			})
		})
	}
}

// What a Locker sends does nothing on a session that is not its own.
func TestBatchOnAnotherSessionDoesNothing(t *testing.T) {
	for _, d := range harness.Drivers[:2] {
		t.Run(d.Name, func(t *testing.T) {
			p := d.Open(t, pgtest.URL(t))
			conn, err := p.DB.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			pid := harness.SessionOf(t, conn)
			keys, ops := lockfn.BatchArgs([]lockfn.Request{{Op: lockfn.OpTry, Key: harness.Key}})
			for _, own := range []bool{false, true} {
				expected, held, answer := pid+1, 0, ""
				if own {
					expected, held, answer = pid, 1, "t"
				}
				var (
					gotPID  int
					answers string
					drawn   string
				)
				if err := conn.QueryRowContext(t.Context(), lockfn.Batch(true, expected), keys, ops).Scan(&gotPID, &answers, &drawn); err != nil {
					t.Fatal(err)
				}
				token, err := lockfn.ReadToken(drawn, 0)
				if err != nil {
					t.Error(err)
				}
				if gotPID != pid || answers != answer || (token != 0) != own {
					t.Errorf("own session %v: pid %d (not %d), answers %q, token %d", own, gotPID, pid, answers, token)
				}
				if n, _ := p.Locks(t); n != held {
					t.Errorf("own session %v: %d locks are held", own, n)
				}
				for _, r := range []lockfn.Request{
					{Op: lockfn.OpUnlock, Key: harness.Key},
					{Op: lockfn.OpTry, Key: harness.Key},
					{Op: lockfn.OpTry, Key: advisory.Pair(7, -1), Mode: advisory.Shared},
					{Op: lockfn.OpUnlock, Key: advisory.Pair(7, -1), Mode: advisory.Shared},
				} {
					before, _ := p.Locks(t)
					result, err := conn.ExecContext(t.Context(), lockfn.Single(r, expected))
					if err != nil {
						t.Fatal(err)
					}
					got, _ := result.RowsAffected()
					after, _ := p.Locks(t)
					change := after - before
					if r.Op == lockfn.OpUnlock {
						change = -change
					}
					if own && (got != lockfn.SingleYes || change != 1) || !own && (got != lockfn.SingleOtherPID || change != 0) {
						t.Errorf("own session %v: %v alone: %d, and %d locks after %d", own, r, got, after, before)
					}
				}
			}
		})
	}
}

// pgxModes are pgx's ways to send a statement.
var pgxModes = []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"}

// Transaction-level locks exclude behind a pooler in transaction mode.
func TestTransactionLocksBehindAPooler(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	serverURL := pgtest.URL(t)
	for _, how := range []harness.Pooling{
		{Options: pgbouncer.Options{Mode: pgbouncer.Transaction, PoolSize: 4}, Clients: 0},
		{Options: pgbouncer.Options{Mode: pgbouncer.Transaction, PoolSize: 4, RoundRobin: true}, Clients: 6},
	} {
		t.Run(how.String(), func(t *testing.T) {
			url := how.Start(t, serverURL)
			try := func(name string, d harness.Driver, url string) {
				t.Run(name, func(t *testing.T) {
					p := d.Open(t, url)
					p.Url = serverURL
					excludesInTransactions(t, p)
					p.NoLocks(t)
				})
			}
			try("pq", harness.Drivers[0], url)
			try("sqlx", harness.Drivers[2], url)
			for _, mode := range pgxModes {
				try("pgx "+mode, harness.Drivers[1], harness.WithParameter(t, url, "default_query_exec_mode", mode))
			}
		})
	}
}

func excludesInTransactions(t *testing.T, p *harness.Pool) {
	var inside, ran, stepped atomic.Int64
	work := func(ctx context.Context, tx xact.Tx) error {
		if n := inside.Add(1); n != 1 {
			t.Errorf("%d are inside", n)
		}
		defer inside.Add(-1)
		ran.Add(1)
		_, err := tx.ExecContext(ctx, "SELECT pg_sleep(0.002)")
		return err
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 2 * harness.PoolerRounds(t) {
				var err error
				switch isolation := []sql.IsolationLevel{sql.LevelDefault, sql.LevelRepeatableRead}[j%2]; i % 4 {
				case 0:
					var did bool
					if did, err = p.TxTryDo(t.Context(), harness.Key, work, xact.TxOptions(&sql.TxOptions{Isolation: isolation})); !did {
						stepped.Add(1)
					}
				case 1:
					err = p.TxDo(t.Context(), harness.Key, work, xact.TxOptions(&sql.TxOptions{Isolation: isolation}))
				case 2:
					err = inOneOfItsOwn(t.Context(), p, work)
				case 3:
					err = p.TxDo(t.Context(), harness.Key, work, advisory.MaxWait(0))
					if errors.Is(err, advisory.ErrNotAcquired) {
						stepped.Add(1)
						err = nil
					}
				}
				if err != nil {
					t.Errorf("caller %d: %v", i, err)
					return
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d ran, %d stepped aside", ran.Load(), stepped.Load())
}

func inOneOfItsOwn(ctx context.Context, p *harness.Pool, work func(context.Context, xact.Tx) error) error {
	tx, err := p.NewTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := xact.Lock(ctx, tx, harness.Key, advisory.MaxWait(time.Millisecond)); errors.Is(err, advisory.ErrNotAcquired) {
		// Nor does a wait that ends leave the transaction unusable.
		if _, err := tx.ExecContext(ctx, "SELECT 1"); err != nil {
			return fmt.Errorf("after a wait that ended: %w", err)
		}
		err = xact.Lock(ctx, tx, harness.Key)
		if err != nil {
			return fmt.Errorf("xact.Lock: %w", err)
		}
	} else if err != nil {
		return fmt.Errorf("xact.Lock with MaxWait: %w", err)
	}
	if err := work(ctx, tx); err != nil {
		return fmt.Errorf("work: %w", err)
	}
	return tx.Commit()
}

// In statement mode there are no transactions, and so no locks, which is told.
func TestTransactionLocksBehindAPoolerInStatementMode(t *testing.T) {
	serverURL := pgtest.URL(t)
	url := pgbouncer.New(t, serverURL, pgbouncer.Options{Mode: pgbouncer.Statement})
	for _, d := range harness.Drivers {
		p := d.Open(t, url)
		p.Url = serverURL
		ran, err := p.TxTryDo(t.Context(), harness.Key, func(context.Context, xact.Tx) error {
			t.Error("fn runs")
			return nil
		})
		if ran || err == nil {
			t.Errorf("%s: %v, %v", d.Name, ran, err)
		}
		p.NoLocks(t)
	}
}

// Behind a pooler in session mode locks are as they are without one.
func TestSessionPooling(t *testing.T) {
	serverURL := pgtest.URL(t)
	url := pgbouncer.New(t, serverURL, pgbouncer.Options{Mode: pgbouncer.Session, PoolSize: 30})
	for _, d := range harness.Drivers {
		t.Run(d.Name, func(t *testing.T) {
			p := d.Open(t, url)
			p.Url = serverURL
			a, b := p.NewConn(t), p.NewConn(t)
			try := func(conn sqlconn.Conn) bool {
				t.Helper()
				ok, err := sqlconn.TryLock(t.Context(), conn, harness.Key, sqlconn.SessionPooler())
				if err != nil {
					t.Fatal(err)
				}
				return ok
			}
			_, err := sqlconn.TryLock(t.Context(), a, harness.Key)
			harness.IsPooler(t, "TryLock without SessionPooler", err)
			if !try(a) || try(b) {
				t.Error("two connections do not exclude each other")
			}
			harness.Unlock(t, a, harness.Key)
			if !try(b) {
				t.Error("not free after the release")
			}
			harness.Unlock(t, b, harness.Key)

			events := &harness.Recorder{}
			one, two := p.Locker(t, advisory.WithObserver(events)), p.Locker(t)
			lock, ok := harness.LockerTry(t, one, harness.Key)
			if _, also := harness.LockerTry(t, two, harness.Key); !ok || also {
				t.Errorf("two Lockers: %v, %v", ok, also)
			}
			got := make(chan error, 1)
			go func() {
				got <- two.Do(context.Background(), harness.Key, func(context.Context) error { return nil })
			}()
			harness.Eventually(t, "the second Locker waits", func() bool { _, waiting := p.Locks(t); return waiting > 0 })
			if err := lock.Unlock(); err != nil {
				t.Error(err)
			}
			if err := <-got; err != nil {
				t.Error(err)
			}
			told := false
			for _, e := range events.All() {
				told = told || e.Kind == advisory.SessionOpened && e.Err != nil && strings.Contains(e.Err.Error(), "session mode")
			}
			if !told {
				t.Error("nobody is told of the pooler")
			}
			excludesInTransactions(t, p)

			// A client that closes its connection frees its locks: the pooler resets the session.
			conn, err := p.Pin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			try(conn)
			conn.Raw(func(any) error { return sqldriver.ErrBadConn })
			conn.Close()
			p.NoLocks(t)
		})
	}
}
