package advisory_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
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
	if ask[int](t, tx, "SELECT 1") != 1 {
		t.Error("the transaction is not usable")
	}
}

func TestTransactionLockEndsWithItsTransaction(t *testing.T) {
	eachDriver(t, func(t *testing.T, p *pool) {
		for _, k := range allKeys {
			for _, m := range modes {
				for _, end := range []func(xact.Tx) error{xact.Tx.Commit, xact.Tx.Rollback} {
					a, b := p.tx(t, nil), p.tx(t, nil)
					if !txTryLock(t, a, k, m) {
						t.Fatalf("%v %v: not free", k, m)
					}
					for _, m2 := range modes {
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
		p.noLocks(t)
	})
}

func TestSessionAndTransactionLocksExcludeEachOther(t *testing.T) {
	eachDriver(t, func(t *testing.T, p *pool) {
		conn, tx := p.conn(t), p.tx(t, nil)
		txTryLock(t, tx, key)
		if tryLock(t, conn, key) {
			t.Error("both hold it")
		}
		tx.Rollback()
		tryLock(t, conn, key)
		if txTryLock(t, p.tx(t, nil), key) {
			t.Error("both hold it")
		}
	})
}

func TestSecondAcquireInOneTransaction(t *testing.T) {
	eachDriver(t, func(t *testing.T, p *pool) {
		tx := p.tx(t, nil)
		txTryLock(t, tx, key)
		other := advisory.Int64(1)
		for what, err := range map[string]error{
			"TryLock": second(xact.TryLock(t.Context(), tx, key)),
			"Lock":    xact.Lock(t.Context(), tx, key, advisory.Shared),
			"LockAll": xact.LockAll(t.Context(), tx, []advisory.Key{other, key}),
		} {
			if !errors.Is(err, advisory.ErrAlreadyHeld) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if k, ok, err := xact.TryLockAny(t.Context(), tx, []advisory.Key{key, other}); k != other || !ok || err != nil {
			t.Errorf("TryLockAny: %v, %v, %v", k, ok, err)
		}
		if _, _, err := xact.TryLockAny(t.Context(), tx, []advisory.Key{key, other}); !errors.Is(err, advisory.ErrAlreadyHeld) {
			t.Errorf("TryLockAny of what is held: %v", err)
		}
		// Given back with a savepoint it is not held.
		third := advisory.Int64(3)
		doSQL(t, tx, "SAVEPOINT mine")
		txTryLock(t, tx, third)
		doSQL(t, tx, "ROLLBACK TO mine")
		if !txTryLock(t, tx, third) {
			t.Error("not free after ROLLBACK TO")
		}
		usable(t, tx)
	})
}

func second[T any](_ T, err error) error { return err }

func TestWaitInATransactionLeavesNothing(t *testing.T) {
	eachDriver(t, func(t *testing.T, p *pool) {
		conn, tx := p.conn(t), p.tx(t, nil)
		doSQL(t, tx, "SET LOCAL lock_timeout = '77s'")
		before := settingsOf(t, tx)
		keys := []advisory.Key{advisory.Int64(1), key, advisory.Int64(9999)}
		tryLock(t, conn, key)

		for what, wait := range map[string]func(context.Context, ...advisory.TxOption) error{
			"Lock":    func(ctx context.Context, o ...advisory.TxOption) error { return xact.Lock(ctx, tx, key, o...) },
			"LockAll": func(ctx context.Context, o ...advisory.TxOption) error { return xact.LockAll(ctx, tx, keys, o...) },
		} {
			for _, d := range []time.Duration{0, 20 * time.Millisecond, 300 * time.Millisecond} {
				err := wait(t.Context(), advisory.MaxWait(d))
				var na *advisory.NotAcquiredError
				if !errors.As(err, &na) || errors.Is(err, context.DeadlineExceeded) || na.Key != key || len(na.Holders) != 1 {
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
		if held, waiting := p.locks(t); held != 1 || waiting != 0 {
			t.Errorf("%d held, %d waiting", held, waiting)
		}
		if after := settingsOf(t, tx); after != before {
			t.Error("settings changed")
		}

		// And it gets them when they are free.
		time.AfterFunc(50*time.Millisecond, func() { sqlconn.Unlock(context.Background(), conn, key) })
		if err := xact.LockAll(t.Context(), tx, append(keys, keys...)); err != nil {
			t.Fatal(err)
		}
		if held, _ := p.locks(t); held != 3 {
			t.Errorf("%d held", held)
		}
		usable(t, tx)
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
		p.noLocks(t)
	})
}

func TestTryLockAnyTakesTheFirstThatIsFree(t *testing.T) {
	eachDriver(t, func(t *testing.T, p *pool) {
		keys := []advisory.Key{advisory.Pair(-1, 7), key, advisory.Int64(-1)}
		var txs []xact.Tx
		for _, want := range keys {
			tx := p.tx(t, nil)
			if k, ok, err := xact.TryLockAny(t.Context(), tx, keys); k != want || !ok || err != nil {
				t.Fatalf("%v, %v, %v; want %v", k, ok, err, want)
			}
			txs = append(txs, tx)
		}
		if k, ok, err := xact.TryLockAny(t.Context(), p.tx(t, nil), keys); ok || err != nil || k != (advisory.Key{}) {
			t.Errorf("all are taken: %v, %v, %v", k, ok, err)
		}
		txs[1].Rollback()
		if k, _, _ := xact.TryLockAny(t.Context(), p.tx(t, nil), keys); k != key {
			t.Errorf("%v", k)
		}
		if held, _ := p.locks(t); held != len(keys) {
			t.Errorf("%d locks are held", held)
		}
	})
}

var levels = []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

func TestTxDo(t *testing.T) {
	errWork := errors.New("work failed")
	eachDriver(t, func(t *testing.T, p *pool) {
		doSQL(t, p, "CREATE TABLE done (what text)")
		count := func() int { return ask[int](t, p, "SELECT count(*) FROM done") }
		for _, level := range levels {
			o := xact.TxOptions(&sql.TxOptions{Isolation: level})
			work := func(ctx context.Context, tx xact.Tx) error {
				if held, _ := p.locks(t); held != 1 {
					t.Errorf("%v: %d locks are held", level, held)
				}
				if got := ask[string](t, tx, "SHOW transaction_isolation"); got != map[sql.IsolationLevel]string{
					sql.LevelReadCommitted: "read committed", sql.LevelRepeatableRead: "repeatable read", sql.LevelSerializable: "serializable",
				}[level] {
					t.Errorf("%v: %s", level, got)
				}
				if ran, err := p.txTryDo(ctx, key, func(context.Context, xact.Tx) error { return nil }, o); ran || err != nil {
					t.Errorf("%v: another TryDo: %v, %v", level, ran, err)
				}
				if _, err := xact.TryLock(ctx, tx, key, xact.AnyIsolation()); !errors.Is(err, advisory.ErrAlreadyHeld) {
					t.Errorf("%v: the key once more: %v", level, err)
				}
				_, err := tx.ExecContext(ctx, "INSERT INTO done VALUES ('once')")
				return err
			}
			before := count()
			if err := p.txDo(t.Context(), key, work, o); err != nil {
				t.Errorf("%v: %v", level, err)
			}
			if ran, err := p.txTryDo(t.Context(), key, work, o, advisory.Shared); !ran || err != nil {
				// Shared beside the inner exclusive TryDo: it steps aside, too.
				t.Errorf("%v: shared: %v, %v", level, ran, err)
			}
			if n := count() - before; n != 2 {
				t.Errorf("%v: %d rows were committed", level, n)
			}
			p.noLocks(t)

			// Whatever happens inside, it is rolled back.
			before = count()
			if err := p.txDo(t.Context(), key, func(ctx context.Context, tx xact.Tx) error {
				doSQL(t, tx, "INSERT INTO done VALUES ('never')")
				return errWork
			}, o); err != errWork {
				t.Errorf("%v: error of the work: %v", level, err)
			}
			if v := panicOf(func() {
				p.txDo(t.Context(), key, func(ctx context.Context, tx xact.Tx) error {
					doSQL(t, tx, "INSERT INTO done VALUES ('never')")
					panic("at the disco")
				}, o)
			}); v != "at the disco" {
				t.Errorf("%v: panic: %v", level, v)
			}
			ctx, cancel := context.WithCancel(t.Context())
			if err := p.txDo(ctx, key, func(ctx context.Context, tx xact.Tx) error {
				doSQL(t, tx, "INSERT INTO done VALUES ('never')")
				cancel()
				usable(t, tx) // it is not tied to ctx
				return nil
			}, o); !errors.Is(err, context.Canceled) {
				t.Errorf("%v: cancelled: %v", level, err)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				p.txDo(context.Background(), key, func(ctx context.Context, tx xact.Tx) error {
					doSQL(t, tx, "INSERT INTO done VALUES ('never')")
					exitGoroutine()
					return nil
				}, o)
			})
			wg.Wait()
			if n := count() - before; n != 0 {
				t.Errorf("%v: %d rows were committed of work that failed", level, n)
			}
			p.noLocks(t)
			if n := p.Stats().InUse; n != 0 {
				t.Errorf("%v: %d connections are in use", level, n)
			}
		}
	})
}

func TestTxDoWaits(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	eachDriver(t, func(t *testing.T, p *pool) {
		conn := p.conn(t)
		one := p.driver.open(t, p.url)
		one.SetMaxOpenConns(1)
		before := settingsOf(t, one)
		for _, level := range levels {
			o := xact.TxOptions(&sql.TxOptions{Isolation: level})
			tryLock(t, conn, key)
			err := p.txDo(t.Context(), key, func(context.Context, xact.Tx) error { t.Error("it ran"); return nil }, o, advisory.MaxWait(600*time.Millisecond))
			var na *advisory.NotAcquiredError
			if !errors.As(err, &na) || len(na.Holders) != 1 {
				t.Errorf("%v: %v", level, err)
			}
			p.Ping() // whatever was given back, is as before
			done := make(chan error, 1)
			go func() {
				done <- one.txDo(context.Background(), key, func(ctx context.Context, tx xact.Tx) error {
					if s := ask[string](t, tx, "SELECT current_setting('lock_timeout') || current_setting('statement_timeout')"); s != "00" {
						t.Errorf("%v: timeouts inside: %s", level, s)
					}
					return nil
				}, o)
			}()
			eventually(t, "it waits", func() bool { _, waiting := p.locks(t); return waiting == 1 })
			unlock(t, conn, key)
			if err := <-done; err != nil {
				t.Errorf("%v: %v", level, err)
			}
			if after := settingsOf(t, one); after != before {
				t.Errorf("%v: settings changed", level)
			}
			p.noLocks(t)
		}
	})
}

func TestTxDoWhereFnEndsTheTransaction(t *testing.T) {
	eachDriver(t, func(t *testing.T, p *pool) {
		for _, end := range []func(xact.Tx) error{xact.Tx.Commit, xact.Tx.Rollback} {
			err := p.txDo(t.Context(), key, func(_ context.Context, tx xact.Tx) error { return end(tx) })
			if !errors.Is(err, sql.ErrTxDone) {
				t.Errorf("%v", err)
			}
		}
		p.noLocks(t)
	})
}
