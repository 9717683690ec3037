package xact_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

func txTryLock(t testing.TB, tx xact.Tx, k advisory.Key, opts ...advisory.TxOption) bool {
	t.Helper()
	ok, err := xact.TryLock(context.Background(), tx, k, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func usable(t testing.TB, tx xact.Tx) {
	t.Helper()
	if harness.Ask[int](t, tx, "SELECT 1") != 1 {
		t.Error("the transaction is not usable")
	}
}

func TestTransactionLockEndsWithItsTransaction(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		for _, k := range harness.AllKeys {
			for _, m := range harness.Modes {
				for _, end := range []func(xact.Tx) error{xact.Tx.Commit, xact.Tx.Rollback} {
					a, b := p.Tx(t, nil), p.Tx(t, nil)
					if !txTryLock(t, a, k, m) {
						t.Fatalf("%v %v: not free", k, m)
					}
					for _, m2 := range harness.Modes {
						if got, want := txTryLock(t, b, k, m2), m == advisory.Shared && m2 == advisory.Shared; got != want {
							t.Errorf("%v beside %v on %v: %v", m2, m, k, got)
						}
					}
					b.Rollback()
					if err := end(a); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		p.NoLocks(t)
	})
}

func TestSessionAndTransactionLocksExcludeEachOther(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		conn, tx := p.NewConn(t), p.Tx(t, nil)
		txTryLock(t, tx, harness.Key)
		if harness.TryLock(t, conn, harness.Key) {
			t.Error("both hold it")
		}
		tx.Rollback()
		harness.TryLock(t, conn, harness.Key)
		if txTryLock(t, p.Tx(t, nil), harness.Key) {
			t.Error("both hold it")
		}
	})
}

func TestSecondAcquireInOneTransaction(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		tx := p.Tx(t, nil)
		txTryLock(t, tx, harness.Key)
		other := advisory.Int64(1)
		for what, err := range map[string]error{
			"TryLock": harness.Second(xact.TryLock(t.Context(), tx, harness.Key)),
			"Lock":    xact.Lock(t.Context(), tx, harness.Key, advisory.Shared),
			"LockAll": xact.LockAll(t.Context(), tx, []advisory.Key{other, harness.Key}),
		} {
			if !errors.Is(err, advisory.ErrAlreadyHeld) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if k, ok, err := xact.TryLockAny(t.Context(), tx, []advisory.Key{harness.Key, other}); k != other || !ok || err != nil {
			t.Errorf("TryLockAny: %v, %v, %v", k, ok, err)
		}
		if _, _, err := xact.TryLockAny(t.Context(), tx, []advisory.Key{harness.Key, other}); !errors.Is(err, advisory.ErrAlreadyHeld) {
			t.Errorf("TryLockAny of what is held: %v", err)
		}
		// Given back with a savepoint it is not held.
		third := advisory.Int64(3)
		harness.DoSQL(t, tx, "SAVEPOINT mine")
		txTryLock(t, tx, third)
		harness.DoSQL(t, tx, "ROLLBACK TO mine")
		if !txTryLock(t, tx, third) {
			t.Error("not free after ROLLBACK TO")
		}
		usable(t, tx)
	})
}

func TestWaitInATransactionLeavesNothing(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		conn, tx := p.NewConn(t), p.Tx(t, nil)
		harness.DoSQL(t, tx, "SET LOCAL lock_timeout = '77s'")
		before := harness.SettingsOf(t, tx)
		keys := []advisory.Key{advisory.Int64(1), harness.Key, advisory.Int64(9999)}
		harness.TryLock(t, conn, harness.Key)

		for what, wait := range map[string]func(context.Context, ...advisory.TxOption) error{
			"Lock":    func(ctx context.Context, o ...advisory.TxOption) error { return xact.Lock(ctx, tx, harness.Key, o...) },
			"LockAll": func(ctx context.Context, o ...advisory.TxOption) error { return xact.LockAll(ctx, tx, keys, o...) },
		} {
			for _, d := range []time.Duration{0, 20 * time.Millisecond, 300 * time.Millisecond} {
				err := wait(t.Context(), advisory.MaxWait(d))
				var na *advisory.NotAcquiredError
				if !errors.As(err, &na) || errors.Is(err, context.DeadlineExceeded) || na.Key != harness.Key || len(na.Holders) != 1 {
					t.Errorf("%s, MaxWait(%v): %v", what, d, err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, cancel)
			if err := wait(ctx); !errors.Is(err, advisory.ErrNotAcquired) || !errors.Is(err, context.Canceled) {
				t.Errorf("%s, cancelled: %v", what, err)
			}
		}
		if ok, err := xact.TryLockAll(t.Context(), tx, keys); ok || err != nil {
			t.Errorf("TryLockAll: %v, %v", ok, err)
		}
		if held, waiting := p.Locks(t); held != 1 || waiting != 0 {
			t.Errorf("%d held, %d waiting", held, waiting)
		}
		if after := harness.SettingsOf(t, tx); after != before {
			t.Error("settings changed")
		}

		// And it gets them when they are free.
		time.AfterFunc(50*time.Millisecond, func() { sqlconn.Unlock(context.Background(), conn, harness.Key) })
		if err := xact.LockAll(t.Context(), tx, append(keys, keys...)); err != nil {
			t.Fatal(err)
		}
		if held, _ := p.Locks(t); held != 3 {
			t.Errorf("%d held", held)
		}
		usable(t, tx)
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
		p.NoLocks(t)
	})
}

func TestTryLockAnyTakesTheFirstThatIsFree(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		keys := []advisory.Key{advisory.Pair(-1, 7), harness.Key, advisory.Int64(-1)}
		var txs []xact.Tx
		for _, want := range keys {
			tx := p.Tx(t, nil)
			if k, ok, err := xact.TryLockAny(t.Context(), tx, keys); k != want || !ok || err != nil {
				t.Fatalf("%v, %v, %v; want %v", k, ok, err, want)
			}
			txs = append(txs, tx)
		}
		if k, ok, err := xact.TryLockAny(t.Context(), p.Tx(t, nil), keys); ok || err != nil || k != (advisory.Key{}) {
			t.Errorf("all are taken: %v, %v, %v", k, ok, err)
		}
		txs[1].Rollback()
		if k, _, _ := xact.TryLockAny(t.Context(), p.Tx(t, nil), keys); k != harness.Key {
			t.Errorf("%v", k)
		}
		if held, _ := p.Locks(t); held != len(keys) {
			t.Errorf("%d locks are held", held)
		}
	})
}

var levels = []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

func TestTxDo(t *testing.T) {
	errWork := errors.New("work failed")
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		harness.DoSQL(t, p, "CREATE TABLE done (what text)")
		count := func() int { return harness.Ask[int](t, p, "SELECT count(*) FROM done") }
		for _, level := range levels {
			o := xact.TxOptions(&sql.TxOptions{Isolation: level})
			work := func(ctx context.Context, tx xact.Tx) error {
				if held, _ := p.Locks(t); held != 1 {
					t.Errorf("%v: %d locks are held", level, held)
				}
				if got := harness.Ask[string](t, tx, "SHOW transaction_isolation"); got != map[sql.IsolationLevel]string{
					sql.LevelReadCommitted: "read committed", sql.LevelRepeatableRead: "repeatable read", sql.LevelSerializable: "serializable",
				}[level] {
					t.Errorf("%v: %s", level, got)
				}
				if ran, err := p.TxTryDo(ctx, harness.Key, func(context.Context, xact.Tx) error { return nil }, o); ran || err != nil {
					t.Errorf("%v: another TryDo: %v, %v", level, ran, err)
				}
				if _, err := xact.TryLock(ctx, tx, harness.Key, xact.AnyIsolation()); !errors.Is(err, advisory.ErrAlreadyHeld) {
					t.Errorf("%v: the key once more: %v", level, err)
				}
				_, err := tx.ExecContext(ctx, "INSERT INTO done VALUES ('once')")
				return err
			}
			before := count()
			if err := p.TxDo(t.Context(), harness.Key, work, o); err != nil {
				t.Errorf("%v: %v", level, err)
			}
			if ran, err := p.TxTryDo(t.Context(), harness.Key, work, o, advisory.Shared); !ran || err != nil {
				// Shared beside the inner exclusive TryDo: it steps aside, too.
				t.Errorf("%v: shared: %v, %v", level, ran, err)
			}
			if n := count() - before; n != 2 {
				t.Errorf("%v: %d rows were committed", level, n)
			}
			p.NoLocks(t)

			// Whatever happens inside, it is rolled back.
			before = count()
			if err := p.TxDo(t.Context(), harness.Key, func(ctx context.Context, tx xact.Tx) error {
				harness.DoSQL(t, tx, "INSERT INTO done VALUES ('never')")
				return errWork
			}, o); err != errWork {
				t.Errorf("%v: error of the work: %v", level, err)
			}
			if v := harness.PanicOf(func() {
				p.TxDo(t.Context(), harness.Key, func(ctx context.Context, tx xact.Tx) error {
					harness.DoSQL(t, tx, "INSERT INTO done VALUES ('never')")
					panic("at the disco")
				}, o)
			}); v != "at the disco" {
				t.Errorf("%v: panic: %v", level, v)
			}
			ctx, cancel := context.WithCancel(t.Context())
			if err := p.TxDo(ctx, harness.Key, func(ctx context.Context, tx xact.Tx) error {
				harness.DoSQL(t, tx, "INSERT INTO done VALUES ('never')")
				cancel()
				usable(t, tx) // it is not tied to ctx
				return nil
			}, o); !errors.Is(err, context.Canceled) {
				t.Errorf("%v: cancelled: %v", level, err)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				p.TxDo(context.Background(), harness.Key, func(ctx context.Context, tx xact.Tx) error {
					harness.DoSQL(t, tx, "INSERT INTO done VALUES ('never')")
					harness.ExitGoroutine()
					return nil
				}, o)
			})
			wg.Wait()
			if n := count() - before; n != 0 {
				t.Errorf("%v: %d rows were committed of work that failed", level, n)
			}
			p.NoLocks(t)
			if n := p.Stats().InUse; n != 0 {
				t.Errorf("%v: %d connections are in use", level, n)
			}
		}
	})
}

func TestTxDoWaits(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		conn := p.NewConn(t)
		one := p.By.Open(t, p.Url)
		one.SetMaxOpenConns(1)
		before := harness.SettingsOf(t, one)
		for _, level := range levels {
			o := xact.TxOptions(&sql.TxOptions{Isolation: level})
			harness.TryLock(t, conn, harness.Key)
			err := p.TxDo(t.Context(), harness.Key, func(context.Context, xact.Tx) error { t.Error("it ran"); return nil }, o, advisory.MaxWait(600*time.Millisecond))
			var na *advisory.NotAcquiredError
			if !errors.As(err, &na) || len(na.Holders) != 1 {
				t.Errorf("%v: %v", level, err)
			}
			p.Ping() // whatever was given back, is as before
			done := make(chan error, 1)
			go func() {
				done <- one.TxDo(context.Background(), harness.Key, func(ctx context.Context, tx xact.Tx) error {
					if s := harness.Ask[string](t, tx, "SELECT current_setting('lock_timeout') || current_setting('statement_timeout')"); s != "00" {
						t.Errorf("%v: timeouts inside: %s", level, s)
					}
					return nil
				}, o)
			}()
			harness.Eventually(t, "it waits", func() bool { _, waiting := p.Locks(t); return waiting == 1 })
			harness.Unlock(t, conn, harness.Key)
			if err := <-done; err != nil {
				t.Errorf("%v: %v", level, err)
			}
			if after := harness.SettingsOf(t, one); after != before {
				t.Errorf("%v: settings changed", level)
			}
			p.NoLocks(t)
		}
	})
}

func TestTxDoWhereFnEndsTheTransaction(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		for _, end := range []func(xact.Tx) error{xact.Tx.Commit, xact.Tx.Rollback} {
			err := p.TxDo(t.Context(), harness.Key, func(_ context.Context, tx xact.Tx) error { return end(tx) })
			if !errors.Is(err, sql.ErrTxDone) {
				t.Errorf("%v", err)
			}
		}
		p.NoLocks(t)
	})
}
