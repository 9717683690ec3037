package conn_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// openRows are ways to leave rows open: the query, and how many of its rows are read.
var openRows = []struct {
	name  string
	query string
	read  int
	args  []any
	pgx   bool // pgx prepares it
}{
	{"one row", "SELECT 1", 0, nil, true},
	{"one row read", "SELECT 1", 1, nil, true},
	{"three rows", "SELECT generate_series(1, 3)", 1, nil, true},
	{"two rows read of two", "SELECT generate_series(1, 2)", 2, nil, true},
	{"no row", "SELECT 1 WHERE false", 0, nil, true},
	{"a parameter", "SELECT $1::int", 1, []any{1}, true},
	{"more rows than a buffer has", "SELECT repeat('x', 1000) FROM generate_series(1, 1000)", 1, nil, true},
	{"update", "UPDATE counters SET n = n + 1 RETURNING n", 0, nil, true},
	{"update read", "UPDATE counters SET n = n + 1 RETURNING n", 1, nil, true},
	{"a second result", "SELECT 1; SELECT 2", 1, nil, false},
	{"a second result of none", "SELECT 1; SELECT 2 WHERE false", 1, nil, false},
	{"an error to come", "SELECT 1 / (2 - n) FROM generate_series(1, 3) n", 1, nil, true},
}

// leave leaves rows open on a connection or in a transaction.
func leave(t *testing.T, on querier, i int) *sql.Rows {
	t.Helper()
	rows, err := on.QueryContext(context.Background(), openRows[i].query, openRows[i].args...)
	if err != nil {
		t.Fatal(err)
	}
	for range openRows[i].read {
		if !rows.Next() {
			t.Fatal(rows.Err())
		}
	}
	return rows
}

// Each call with rows open says what is so, or fails. lib/pq takes what is left of the rows
// for the call's answer.
func TestCallsWithOpenRows(t *testing.T) {
	pgtest.Slow(t)
	ctx := context.Background()
	free, taken, own := advisory.Int64(1), advisory.Int64(2), advisory.Int64(3)
	wait := advisory.MaxWait(50 * time.Millisecond)
	onConn := func(f func(sqlconn.Conn) (bool, error)) func(any) (bool, error) {
		return func(on any) (bool, error) { return f(on.(sqlconn.Conn)) }
	}
	inTx := func(f func(xact.Tx) (bool, error)) func(any) (bool, error) {
		return func(on any) (bool, error) { return f(on.(xact.Tx)) }
	}
	calls := []struct {
		name string
		call func(on any) (bool, error)
		want bool
	}{
		{"TryLock, free", onConn(func(c sqlconn.Conn) (bool, error) { return sqlconn.TryLock(ctx, c, free) }), true},
		{"TryLock, taken", onConn(func(c sqlconn.Conn) (bool, error) { return sqlconn.TryLock(ctx, c, taken) }), false},
		{"Lock, free", onConn(func(c sqlconn.Conn) (bool, error) { err := sqlconn.Lock(ctx, c, free); return err == nil, err }), true},
		{"Lock, taken", onConn(func(c sqlconn.Conn) (bool, error) { err := sqlconn.Lock(ctx, c, taken, wait); return err == nil, err }), false},
		{"Lock, plain, free", onConn(func(c sqlconn.Conn) (bool, error) {
			err := sqlconn.Lock(ctx, c, free, sqlconn.PlainWait())
			return err == nil, err
		}), true},
		{"TryLock, held", onConn(func(c sqlconn.Conn) (bool, error) { return sqlconn.TryLock(ctx, c, own) }), false},
		{"Unlock", onConn(func(c sqlconn.Conn) (bool, error) { err := sqlconn.Unlock(ctx, c, own); return err == nil, err }), true},
		{"Unlock of what is not held", onConn(func(c sqlconn.Conn) (bool, error) {
			err := sqlconn.Unlock(ctx, c, free)
			return err == nil, err
		}), false},
		{"UnlockAll", onConn(func(c sqlconn.Conn) (bool, error) { err := sqlconn.UnlockAll(ctx, c); return err == nil, err }), true},
		{"Held", onConn(func(c sqlconn.Conn) (bool, error) {
			held, err := sqlconn.Held(ctx, c)
			return len(held) == 1, err
		}), true},
		{"xact.TryLock, free", inTx(func(tx xact.Tx) (bool, error) { return xact.TryLock(ctx, tx, free) }), true},
		{"xact.TryLock, taken", inTx(func(tx xact.Tx) (bool, error) { return xact.TryLock(ctx, tx, taken) }), false},
		{"xact.Lock, free", inTx(func(tx xact.Tx) (bool, error) { err := xact.Lock(ctx, tx, free); return err == nil, err }), true},
		{"xact.Lock, taken", inTx(func(tx xact.Tx) (bool, error) { err := xact.Lock(ctx, tx, taken, wait); return err == nil, err }), false},
		{"xact.TryLockAll, free", inTx(func(tx xact.Tx) (bool, error) {
			return xact.TryLockAll(ctx, tx, []advisory.Key{free, advisory.Int64(4)})
		}), true},
		{"xact.TryLockAll, taken", inTx(func(tx xact.Tx) (bool, error) { return xact.TryLockAll(ctx, tx, []advisory.Key{free, taken}) }), false},
		{"xact.LockAll, taken", inTx(func(tx xact.Tx) (bool, error) {
			err := xact.LockAll(ctx, tx, []advisory.Key{free, taken}, wait)
			return err == nil, err
		}), false},
		{"xact.TryLockAny, free", inTx(func(tx xact.Tx) (bool, error) {
			k, ok, err := xact.TryLockAny(ctx, tx, []advisory.Key{taken, free})
			if ok && k != free {
				t.Errorf("granted %v, which another session holds", k)
			}
			return ok, err
		}), true},
		{"xact.TryLockAny, taken", inTx(func(tx xact.Tx) (bool, error) {
			_, ok, err := xact.TryLockAny(ctx, tx, []advisory.Key{taken})
			return ok, err
		}), false},
	}
	lag := harness.WatchLag(t)
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		harness.DoSQL(t, p, "CREATE TABLE counters (n int)")
		harness.DoSQL(t, p, "INSERT INTO counters VALUES (0)")
		other := p.NewConn(t)
		harness.TryLock(t, other, taken)
		for i, open := range openRows {
			if !open.pgx && p.By.Sql == "pgx" {
				continue
			}
			for _, c := range calls {
				t.Run(fmt.Sprintf("%s, %s", open.name, c.name), func(t *testing.T) {
					var on querier
					var end func() error
					tx := strings.HasPrefix(c.name, "xact.")
					if tx {
						x, err := p.NewTx(ctx, nil)
						if err != nil {
							t.Fatal(err)
						}
						on, end = x, x.Rollback
					} else {
						x, err := p.Pin(ctx)
						if err != nil {
							t.Fatal(err)
						}
						on, end = x, func() error { sqlconn.UnlockAll(ctx, x); return x.Close() }
						harness.TryLock(t, x, own)
					}
					rows := leave(t, on, i)
					start := time.Now()
					got, err := c.call(on)
					lag.InTime(t, time.Since(start), 2*time.Second)
					switch {
					case err == nil && got != c.want:
						t.Errorf("says %v", got)
					case err != nil && got && c.name != "Held":
						t.Errorf("says %v and %v", got, err)
					case errors.Is(err, advisory.ErrNotAcquired) && (c.want || p.By.Sql != "pgx"):
						t.Errorf("%v, though rows are open", err) // pgx may know that none are
					case err != nil && open.name != "an error to come" && !strings.Contains(err.Error(), "rows of an earlier query are open") &&
						!errors.Is(err, advisory.ErrNotAcquired) && !errors.Is(err, advisory.ErrAlreadyHeld) && !errors.Is(err, advisory.ErrNotHeld):
						t.Errorf("unclear: %v", err)
					}
					// The caller's own statements do not read what the call has left.
					if p.By.Sql == "postgres" {
						if rows.NextResultSet() {
							names, _ := rows.Columns()
							if len(names) > 0 && strings.HasPrefix(names[0], "pgadvisory") {
								t.Errorf("the caller reads %v", names)
							}
						}
						if next, err := on.QueryContext(ctx, "SELECT 4711 AS mine"); err == nil {
							var n int
							if !next.Next() || next.Scan(&n) != nil || n != 4711 {
								t.Errorf("the caller's next statement is answered %d, %v", n, next.Err())
							}
							next.Close()
						}
					}
					rows.Close()
					end()
					harness.Eventually(t, "only the other's lock is left", func() bool {
						held, waiting := p.Locks(t)
						return held == 1 && waiting == 0
					})
				})
			}
		}
		harness.Unlock(t, other, taken)
		p.NoLocks(t)
		// Whoever comes next finds the pool as it should be.
		for range 5 {
			conn := p.NewConn(t)
			if n := harness.Ask[int](t, conn, "SELECT 4711"); n != 4711 {
				t.Errorf("%d", n)
			}
		}
	})
}
