package conn_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// Work that leaves a transaction or rows open on its connection is told so, in bounded time, and
// what it had not committed is rolled back before the lock is free.
func TestDoWhereTheWorkLeavesSomethingOpen(t *testing.T) {
	ctx := context.Background()
	begin := func(c sqlconn.Conn) (*sql.Tx, error) {
		return c.(interface {
			BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
		}).BeginTx(ctx, nil)
	}
	ways := []struct {
		name string
		lost bool // it is not known whether the lock was held until the end
		fn   func(t *testing.T, c sqlconn.Conn) (end func())
	}{
		{"transaction", false, func(t *testing.T, c sqlconn.Conn) func() {
			tx, err := begin(c)
			if err != nil {
				t.Fatal(err)
			}
			harness.DoSQL(t, tx, "UPDATE work SET n = n + 1")
			return func() { tx.Rollback() }
		}},
		{"failed transaction", false, func(t *testing.T, c sqlconn.Conn) func() {
			tx, err := begin(c)
			if err != nil {
				t.Fatal(err)
			}
			harness.DoSQL(t, tx, "UPDATE work SET n = n + 1")
			tx.Exec("SELECT 1 / 0")
			return func() { tx.Rollback() }
		}},
		{"transaction by hand", false, func(t *testing.T, c sqlconn.Conn) func() {
			harness.DoSQL(t, c, "BEGIN")
			harness.DoSQL(t, c, "UPDATE work SET n = n + 1")
			return func() {}
		}},
		{"rows", true, func(t *testing.T, c sqlconn.Conn) func() {
			rows, err := c.QueryContext(ctx, "SELECT generate_series(1, 3)")
			if err != nil {
				t.Fatal(err)
			}
			rows.Next()
			return func() { rows.Close() }
		}},
		{"transaction and rows", true, func(t *testing.T, c sqlconn.Conn) func() {
			tx, err := begin(c)
			if err != nil {
				t.Fatal(err)
			}
			rows, err := tx.Query("UPDATE work SET n = n + 1 RETURNING n")
			if err != nil {
				t.Fatal(err)
			}
			return func() { rows.Close(); tx.Rollback() }
		}},
	}
	errFn := errors.New("fn")
	lag := harness.WatchLag(t)
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		harness.DoSQL(t, p, "CREATE TABLE work (n int)")
		harness.DoSQL(t, p, "INSERT INTO work VALUES (0)")
		for _, way := range ways {
			for _, result := range []string{"nil", "error", "panic"} {
				for _, try := range []bool{false, true} {
					t.Run(way.name+", "+result, func(t *testing.T) {
						var end func()
						entered := make(chan struct{})
						fn := func(_ context.Context, c sqlconn.Conn) error {
							end = way.fn(t, c)
							close(entered)
							time.Sleep(20 * time.Millisecond) // for the next to wait
							switch result {
							case "error":
								return errFn
							case "panic":
								panic(errFn)
							}
							return nil
						}
						next := make(chan error, 1)
						go func() {
							<-entered
							next <- p.Do(ctx, harness.Key, func(_ context.Context, c sqlconn.Conn) error {
								// An open transaction of the last holder would let this wait.
								_, err := c.ExecContext(ctx, "SET lock_timeout = '10ms'; UPDATE work SET n = n; RESET lock_timeout")
								return err
							})
						}()
						start := time.Now()
						panicked, err := func() (panicked any, err error) {
							defer func() { panicked = recover() }()
							if try {
								_, err = p.TryDo(ctx, harness.Key, fn)
							} else {
								err = p.Do(ctx, harness.Key, fn)
							}
							return nil, err
						}()
						lag.InTime(t, time.Since(start), 3*time.Second)
						if result == "panic" {
							if panicked != errFn {
								t.Errorf("panic %v", panicked)
							}
						} else if err == nil || panicked != nil || !strings.Contains(err.Error(), "fn left a transaction or rows open") ||
							errors.Is(err, errFn) != (result == "error") || errors.Is(err, advisory.ErrLost) != way.lost {
							t.Errorf("%v, panic %v", err, panicked)
						}
						select {
						case err := <-next:
							if err != nil {
								t.Errorf("the next holder: %v", err)
							}
						case <-time.After(harness.Patience):
							t.Error("the next holder does not get the lock")
						}
						if n := harness.Ask[int](t, p, "SELECT n FROM work"); n != 0 {
							t.Errorf("%d was committed", n)
						}
						p.NoLocks(t)
						end()
					})
				}
			}
		}
		if open := p.Stats().InUse; open != 0 {
			harness.Eventually(t, "all connections are back", func() bool { return p.Stats().InUse == 0 })
		}
	})
}

// Work that ends its transaction by hand has left only database/sql's transaction open.
func TestDoWhereTheWorkEndsItsTransactionByHand(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		ctx := context.Background()
		var tx *sql.Tx
		err := sqlconn.Do(ctx, p.DB.Conn, harness.Key, func(_ context.Context, c *sql.Conn) (err error) {
			if tx, err = c.BeginTx(ctx, nil); err != nil {
				return err
			}
			_, err = c.ExecContext(ctx, "COMMIT")
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "fn left a transaction") {
			t.Error(err)
		}
		p.NoLocks(t)
		tx.Rollback()
	})
}
