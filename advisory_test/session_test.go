package advisory_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

var key = advisory.Int64(4820)

// allKeys are the corners of both key spaces.
var allKeys = []advisory.Key{
	advisory.Int64(0), advisory.Int64(1), advisory.Int64(-1), advisory.Int64(4820), advisory.Int64(1 << 32),
	advisory.Int64(-1 << 63), advisory.Int64(1<<63 - 1),
	advisory.Pair(0, 0), advisory.Pair(0, 1), advisory.Pair(-1, -2), advisory.Pair(-1<<31, 1<<31-1), advisory.Pair(1<<31-1, -1<<31),
}

var modes = []advisory.Mode{advisory.Exclusive, advisory.Shared}

func tryLock(t testing.TB, conn sqlconn.Conn, k advisory.Key, opts ...advisory.ConnOption) bool {
	t.Helper()
	ok, err := sqlconn.TryLock(context.Background(), conn, k, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func unlock(t testing.TB, conn sqlconn.Conn, k advisory.Key, opts ...advisory.ConnOption) {
	t.Helper()
	if err := sqlconn.Unlock(context.Background(), conn, k, opts...); err != nil {
		t.Fatal(err)
	}
}

func TestOneWinsTheOthersStepAside(t *testing.T) {
	eachDriver(t, func(t *testing.T, p *pool) {
		a, b := p.conn(t), p.conn(t)
		if !tryLock(t, a, key) {
			t.Fatal("the first try is false")
		}
		if tryLock(t, b, key) {
			t.Fatal("the second try is true")
		}
		unlock(t, a, key)
		if !tryLock(t, b, key) {
			t.Fatal("the try after the release is false")
		}
	})
}

func TestEveryKeyAndMode(t *testing.T) {
	eachDriver(t, func(t *testing.T, p *pool) {
		a, b := p.conn(t), p.conn(t)
		for _, k := range allKeys {
			for _, m := range modes {
				if !tryLock(t, a, k, m) {
					t.Fatalf("%v %v: not free", k, m)
				}
				held, err := sqlconn.Held(t.Context(), a)
				if err != nil {
					t.Fatal(err)
				}
				if want := []advisory.HeldLock{{Key: k, Mode: m}}; !slices.Equal(held, want) {
					t.Errorf("%v %v: held %v", k, m, held)
				}
				for _, m2 := range modes {
					want := m == advisory.Shared && m2 == advisory.Shared
					if got := tryLock(t, b, k, m2); got != want {
						t.Errorf("%v beside %v on %v: %v", m2, m, k, got)
					} else if got {
						unlock(t, b, k, m2)
					}
				}
				// A wait that is handed the lock takes the very same key and mode.
				done := make(chan error, 1)
				go func() { done <- sqlconn.Lock(context.Background(), b, k) }()
				eventually(t, "b waits", func() bool { _, waiting := p.locks(t); return waiting == 1 })
				unlock(t, a, k, m)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if held, _ := sqlconn.Held(t.Context(), b); !slices.Equal(held, []advisory.HeldLock{{Key: k}}) {
					t.Errorf("%v: held after a wait: %v", k, held)
				}
				unlock(t, b, k)
			}
		}
		p.noLocks(t)
	})
}

func TestKeysAreDistinct(t *testing.T) {
	eachDriver(t, func(t *testing.T, p *pool) {
		a := p.conn(t)
		for _, k := range allKeys {
			if !tryLock(t, a, k) {
				t.Errorf("%v is taken by another of the keys", k)
			}
		}
		held, err := sqlconn.Held(t.Context(), a)
		if err != nil || len(held) != len(allKeys) {
			t.Errorf("held %v, %v", held, err)
		}
		if err := sqlconn.UnlockAll(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		p.noLocks(t)
		if !tryLock(t, a, key) {
			t.Error("not free after UnlockAll")
		}
	})
}

func TestUnlockOfWhatIsNotHeld(t *testing.T) {
	eachDriver(t, func(t *testing.T, p *pool) {
		a := p.conn(t)
		if err := sqlconn.Unlock(t.Context(), a, key); !errors.Is(err, advisory.ErrNotHeld) {
			t.Errorf("nothing held: %v", err)
		}
		tryLock(t, a, key, advisory.Shared)
		if err := sqlconn.Unlock(t.Context(), a, key); !errors.Is(err, advisory.ErrNotHeld) {
			t.Errorf("held shared: %v", err)
		}
		unlock(t, a, key, advisory.Shared)
		if err := sqlconn.Unlock(t.Context(), a, key, advisory.Shared); !errors.Is(err, advisory.ErrNotHeld) {
			t.Errorf("second unlock: %v", err)
		}
		if !tryLock(t, a, key) { // the connection is as good as before
			t.Error("not free")
		}
	})
}

func TestSecondAcquireOnOneConnection(t *testing.T) {
	eachDriver(t, func(t *testing.T, p *pool) {
		a := p.conn(t)
		tryLock(t, a, key)
		if _, err := sqlconn.TryLock(t.Context(), a, key); !errors.Is(err, advisory.ErrAlreadyHeld) {
			t.Errorf("TryLock: %v", err)
		}
		if err := sqlconn.Lock(t.Context(), a, key, advisory.Shared); !errors.Is(err, advisory.ErrAlreadyHeld) {
			t.Errorf("Lock: %v", err)
		}
		unlock(t, a, key) // one unlock is enough
		p.noLocks(t)

		// What was released behind the package's back is not "held".
		tryLock(t, a, key)
		doSQL(t, a, "SELECT pg_advisory_unlock_all()")
		if !tryLock(t, a, key) {
			t.Error("not free after pg_advisory_unlock_all by hand")
		}
	})
}

func TestALockLeftOnAPooledConnectionIsTold(t *testing.T) {
	eachDriver(t, func(t *testing.T, p *pool) {
		p.SetMaxOpenConns(1)
		a, err := p.pin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		tryLock(t, a, key)
		a.Close() // a mistake: not unlocked
		if _, err := sqlconn.TryLock(t.Context(), p.conn(t), key); !errors.Is(err, advisory.ErrAlreadyHeld) {
			t.Errorf("the next borrower: %v", err)
		}
	})
}

func TestUnlockAfterCancelledContext(t *testing.T) {
	eachDriver(t, func(t *testing.T, p *pool) {
		a := p.conn(t)
		tryLock(t, a, key)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := sqlconn.Unlock(ctx, a, key); err != nil {
			t.Fatal(err)
		}
		p.noLocks(t)
		if !tryLock(t, a, key) {
			t.Error("the connection cannot lock any more")
		}
	})
}

func TestLockWaitsItsTurn(t *testing.T) {
	eachDriver(t, func(t *testing.T, p *pool) {
		a, b := p.conn(t), p.conn(t)
		before := settingsOf(t, b)
		tryLock(t, a, key)
		done := make(chan error, 1)
		go func() { done <- sqlconn.Lock(context.Background(), b, key) }()
		eventually(t, "b waits", func() bool { _, waiting := p.locks(t); return waiting == 1 })
		select {
		case err := <-done:
			t.Fatalf("Lock returned %v while another holds the key", err)
		case <-time.After(1200 * time.Millisecond): // some slices
		}
		unlock(t, a, key)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if tryLock(t, a, key) {
			t.Error("b does not hold the key")
		}
		if after := settingsOf(t, b); after != before {
			t.Error("settings changed")
		}
		unlock(t, b, key)
		p.noLocks(t)
	})
}

func TestMaxWait(t *testing.T) {
	pgtest.Slow(t)
	eachDriver(t, func(t *testing.T, p *pool) {
		a, b := p.conn(t), p.conn(t)
		doSQL(t, a, "SET application_name = 'the holder'")
		tryLock(t, a, key)
		for _, d := range []time.Duration{0, 1, 30 * time.Millisecond, 700 * time.Millisecond} {
			err := sqlconn.Lock(t.Context(), b, key, advisory.MaxWait(d))
			var na *advisory.NotAcquiredError
			if !errors.As(err, &na) || !errors.Is(err, advisory.ErrNotAcquired) || errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("MaxWait(%v): %v", d, err)
			}
			if na.Key != key || na.Waited < d {
				t.Errorf("MaxWait(%v): %+v", d, na)
			}
			if len(na.Holders) != 1 || na.Holders[0].Application != "the holder" || na.Holders[0].User == "" || na.Holders[0].Client == "" ||
				na.Holders[0].PID != ask[int](t, a, "SELECT pg_backend_pid()") || na.Holders[0].Since.IsZero() {
				t.Errorf("MaxWait(%v): holders %v", d, na.Holders)
			}
		}
		// MaxWait bounds the wait, not the work.
		unlock(t, a, key)
		err := p.do(t.Context(), key, func(ctx context.Context, _ sqlconn.Conn) error {
			time.Sleep(50 * time.Millisecond)
			return ctx.Err()
		}, advisory.MaxWait(10*time.Millisecond))
		if err != nil {
			t.Errorf("work longer than MaxWait: %v", err)
		}
	})
}

func TestCancelledWaitLeavesTheConnectionUsable(t *testing.T) {
	eachDriver(t, func(t *testing.T, p *pool) {
		a, b := p.conn(t), p.conn(t)
		pid := ask[int](t, b, "SELECT pg_backend_pid()")
		before := settingsOf(t, b)
		tryLock(t, a, key)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- sqlconn.Lock(ctx, b, key) }()
		eventually(t, "b waits", func() bool { _, waiting := p.locks(t); return waiting == 1 })
		cancel()
		err := <-done
		if !errors.Is(err, advisory.ErrNotAcquired) || !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if now := ask[int](t, b, "SELECT pg_backend_pid()"); now != pid {
			t.Error("the connection was replaced")
		}
		if after := settingsOf(t, b); after != before {
			t.Error("settings changed")
		}
		unlock(t, a, key)
		p.noLocks(t)
	})
}

// settingsOf is every setting of a session, those of ours too, which are empty again after a
// wait. Those of plpgsql appear when it is first used.
func settingsOf(t testing.TB, on interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}) string {
	t.Helper()
	return ask[string](t, on, `SELECT string_agg(name || '=' || coalesce(setting, ''), ' ' ORDER BY name)
		|| ' ' || (SELECT string_agg(coalesce(current_setting('pgadvisory.' || n, true), ''), ' ') FROM unnest('{a,b,got}'::text[]) n)
		FROM pg_settings WHERE name NOT LIKE 'plpgsql.%'`)
}

func TestDoReleasesAlways(t *testing.T) {
	errWork := errors.New("work failed")
	eachDriver(t, func(t *testing.T, p *pool) {
		if err := p.do(t.Context(), key, func(ctx context.Context, c sqlconn.Conn) error {
			if held, _ := sqlconn.Held(ctx, c); len(held) != 1 {
				t.Errorf("inside: %v", held)
			}
			if ran, err := p.tryDo(ctx, key, func(context.Context, sqlconn.Conn) error { return nil }); ran || err != nil {
				t.Errorf("another TryDo: %v, %v", ran, err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		p.noLocks(t)
		if err := p.do(t.Context(), key, func(context.Context, sqlconn.Conn) error { return errWork }); err != errWork {
			t.Errorf("error of the work: %v", err)
		}
		p.noLocks(t)
		if v := panicOf(func() {
			p.do(t.Context(), key, func(context.Context, sqlconn.Conn) error { panic("at the disco") })
		}); v != "at the disco" {
			t.Errorf("panic: %v", v)
		}
		p.noLocks(t)
		ctx, cancel := context.WithCancel(t.Context())
		if err := p.do(ctx, key, func(ctx context.Context, _ sqlconn.Conn) error { cancel(); return ctx.Err() }); err != context.Canceled {
			t.Errorf("cancelled: %v", err)
		}
		p.noLocks(t)
		var wg sync.WaitGroup
		wg.Go(func() {
			p.do(context.Background(), key, func(context.Context, sqlconn.Conn) error { exitGoroutine(); return nil })
		})
		wg.Wait()
		p.noLocks(t)
		if n := p.Stats().InUse; n != 0 {
			t.Errorf("%d connections are still in use", n)
		}
	})
}

func TestDoTellsThatTheLockWasLost(t *testing.T) {
	eachDriver(t, func(t *testing.T, p *pool) {
		err := p.do(t.Context(), key, func(ctx context.Context, c sqlconn.Conn) error {
			doSQL(t, p, "SELECT pg_terminate_backend($1)", ask[int](t, c, "SELECT pg_backend_pid()"))
			return nil
		})
		if !errors.Is(err, advisory.ErrLost) {
			t.Errorf("terminated: %v", err)
		}
		err = p.do(t.Context(), key, func(ctx context.Context, c sqlconn.Conn) error {
			doSQL(t, c, "SELECT pg_advisory_unlock_all()")
			return nil
		})
		if !errors.Is(err, advisory.ErrLost) {
			t.Errorf("unlocked by hand: %v", err)
		}
		p.noLocks(t)
	})
}

func TestLockInsideATransactionOnTheConnection(t *testing.T) {
	eachDriver(t, func(t *testing.T, p *pool) {
		a, b := p.conn(t), p.conn(t)
		tryLock(t, a, key)
		doSQL(t, b, "BEGIN")
		doSQL(t, b, "SET LOCAL lock_timeout = '77s'")
		before := settingsOf(t, b)
		if err := sqlconn.Lock(t.Context(), b, key, advisory.MaxWait(300*time.Millisecond)); !errors.Is(err, advisory.ErrNotAcquired) {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- sqlconn.Lock(context.Background(), b, key) }()
		time.Sleep(100 * time.Millisecond)
		if _, waiting := p.locks(t); waiting != 0 {
			t.Error("it waits on the server, in a transaction that is not the package's")
		}
		unlock(t, a, key)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if after := settingsOf(t, b); after != before {
			t.Error("settings changed")
		}
		doSQL(t, b, "ROLLBACK")
		unlock(t, b, key) // session locks outlast the transaction
	})
}

func TestPlainWait(t *testing.T) {
	eachDriver(t, func(t *testing.T, p *pool) {
		a, b, c := p.conn(t), p.conn(t), p.conn(t)
		tryLock(t, a, key)
		done := make(chan error, 1)
		go func() { done <- sqlconn.Lock(context.Background(), b, key, sqlconn.PlainWait()) }()
		eventually(t, "b waits", func() bool { _, waiting := p.locks(t); return waiting == 1 })
		err := sqlconn.Lock(t.Context(), c, key, sqlconn.PlainWait(), advisory.MaxWait(100*time.Millisecond))
		if !errors.Is(err, advisory.ErrNotAcquired) {
			t.Errorf("MaxWait: %v", err)
		}
		unlock(t, a, key)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		unlock(t, b, key)
		p.noLocks(t)
	})
}
