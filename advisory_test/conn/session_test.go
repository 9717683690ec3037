package conn_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

func TestOneWinsTheOthersStepAside(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a, b := p.NewConn(t), p.NewConn(t)
		if !harness.TryLock(t, a, harness.Key) {
			t.Fatal("the first try is false")
		}
		if harness.TryLock(t, b, harness.Key) {
			t.Fatal("the second try is true")
		}
		harness.Unlock(t, a, harness.Key)
		if !harness.TryLock(t, b, harness.Key) {
			t.Fatal("the try after the release is false")
		}
	})
}

func TestEveryKeyAndMode(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a, b := p.NewConn(t), p.NewConn(t)
		for _, k := range harness.AllKeys {
			for _, m := range harness.Modes {
				if !harness.TryLock(t, a, k, m) {
					t.Fatalf("%v %v: not free", k, m)
				}
				held, err := sqlconn.Held(t.Context(), a)
				if err != nil {
					t.Fatal(err)
				}
				if want := []advisory.HeldLock{{Key: k, Mode: m}}; !slices.Equal(held, want) {
					t.Errorf("%v %v: held %v", k, m, held)
				}
				for _, m2 := range harness.Modes {
					want := m == advisory.Shared && m2 == advisory.Shared
					if got := harness.TryLock(t, b, k, m2); got != want {
						t.Errorf("%v beside %v on %v: %v", m2, m, k, got)
					} else if got {
						harness.Unlock(t, b, k, m2)
					}
				}
				// A wait that is handed the lock takes the very same key and mode.
				done := make(chan error, 1)
				go func() { done <- sqlconn.Lock(context.Background(), b, k) }()
				harness.Eventually(t, "b waits", func() bool { _, waiting := p.Locks(t); return waiting == 1 })
				harness.Unlock(t, a, k, m)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if held, _ := sqlconn.Held(t.Context(), b); !slices.Equal(held, []advisory.HeldLock{{Key: k}}) {
					t.Errorf("%v: held after a wait: %v", k, held)
				}
				harness.Unlock(t, b, k)
			}
		}
		p.NoLocks(t)
	})
}

func TestKeysAreDistinct(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a := p.NewConn(t)
		for _, k := range harness.AllKeys {
			if !harness.TryLock(t, a, k) {
				t.Errorf("%v is taken by another of the keys", k)
			}
		}
		held, err := sqlconn.Held(t.Context(), a)
		if err != nil || len(held) != len(harness.AllKeys) {
			t.Errorf("held %v, %v", held, err)
		}
		if err := sqlconn.UnlockAll(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		p.NoLocks(t)
		if !harness.TryLock(t, a, harness.Key) {
			t.Error("not free after UnlockAll")
		}
	})
}

func TestUnlockOfWhatIsNotHeld(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a := p.NewConn(t)
		if err := sqlconn.Unlock(t.Context(), a, harness.Key); !errors.Is(err, advisory.ErrNotHeld) {
			t.Errorf("nothing held: %v", err)
		}
		harness.TryLock(t, a, harness.Key, advisory.Shared)
		if err := sqlconn.Unlock(t.Context(), a, harness.Key); !errors.Is(err, advisory.ErrNotHeld) {
			t.Errorf("held shared: %v", err)
		}
		harness.Unlock(t, a, harness.Key, advisory.Shared)
		if err := sqlconn.Unlock(t.Context(), a, harness.Key, advisory.Shared); !errors.Is(err, advisory.ErrNotHeld) {
			t.Errorf("second unlock: %v", err)
		}
		if !harness.TryLock(t, a, harness.Key) { // the connection is as good as before
			t.Error("not free")
		}
	})
}

func TestSecondAcquireOnOneConnection(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a := p.NewConn(t)
		harness.TryLock(t, a, harness.Key)
		if _, err := sqlconn.TryLock(t.Context(), a, harness.Key); !errors.Is(err, advisory.ErrAlreadyHeld) {
			t.Errorf("TryLock: %v", err)
		}
		if err := sqlconn.Lock(t.Context(), a, harness.Key, advisory.Shared); !errors.Is(err, advisory.ErrAlreadyHeld) {
			t.Errorf("Lock: %v", err)
		}
		harness.Unlock(t, a, harness.Key) // one unlock is enough
		p.NoLocks(t)

		// What was released behind the package's back is not "held".
		harness.TryLock(t, a, harness.Key)
		harness.DoSQL(t, a, "SELECT pg_advisory_unlock_all()")
		if !harness.TryLock(t, a, harness.Key) {
			t.Error("not free after pg_advisory_unlock_all by hand")
		}
	})
}

func TestALockLeftOnAPooledConnectionIsTold(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		p.SetMaxOpenConns(1)
		a, err := p.Pin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		harness.TryLock(t, a, harness.Key)
		a.Close() // a mistake: not unlocked
		if _, err := sqlconn.TryLock(t.Context(), p.NewConn(t), harness.Key); !errors.Is(err, advisory.ErrAlreadyHeld) {
			t.Errorf("the next borrower: %v", err)
		}
	})
}

func TestUnlockAfterCancelledContext(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a := p.NewConn(t)
		harness.TryLock(t, a, harness.Key)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := sqlconn.Unlock(ctx, a, harness.Key); err != nil {
			t.Fatal(err)
		}
		p.NoLocks(t)
		if !harness.TryLock(t, a, harness.Key) {
			t.Error("the connection cannot lock any more")
		}
	})
}

func TestLockWaitsItsTurn(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a, b := p.NewConn(t), p.NewConn(t)
		before := harness.SettingsOf(t, b)
		harness.TryLock(t, a, harness.Key)
		done := make(chan error, 1)
		go func() { done <- sqlconn.Lock(context.Background(), b, harness.Key) }()
		harness.Eventually(t, "b waits", func() bool { _, waiting := p.Locks(t); return waiting == 1 })
		select {
		case err := <-done:
			t.Fatalf("Lock returned %v while another holds the key", err)
		case <-time.After(1200 * time.Millisecond): // some slices
		}
		harness.Unlock(t, a, harness.Key)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if harness.TryLock(t, a, harness.Key) {
			t.Error("b does not hold the key")
		}
		if after := harness.SettingsOf(t, b); after != before {
			t.Error("settings changed")
		}
		harness.Unlock(t, b, harness.Key)
		p.NoLocks(t)
	})
}

func TestMaxWait(t *testing.T) {
	pgtest.Slow(t)
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a, b := p.NewConn(t), p.NewConn(t)
		harness.DoSQL(t, a, "SET application_name = 'the holder'")
		harness.TryLock(t, a, harness.Key)
		for _, d := range []time.Duration{0, 1, 30 * time.Millisecond, 700 * time.Millisecond} {
			err := sqlconn.Lock(t.Context(), b, harness.Key, advisory.MaxWait(d))
			var na *advisory.NotAcquiredError
			if !errors.As(err, &na) || !errors.Is(err, advisory.ErrNotAcquired) || errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("MaxWait(%v): %v", d, err)
			}
			if na.Key != harness.Key || na.Waited < d {
				t.Errorf("MaxWait(%v): %+v", d, na)
			}
			if len(na.Holders) != 1 || na.Holders[0].Application != "the holder" || na.Holders[0].User == "" || na.Holders[0].Client == "" ||
				na.Holders[0].PID != harness.Ask[int](t, a, "SELECT pg_backend_pid()") || na.Holders[0].Since.IsZero() {
				t.Errorf("MaxWait(%v): holders %v", d, na.Holders)
			}
		}
		// MaxWait bounds the wait, not the work.
		harness.Unlock(t, a, harness.Key)
		err := p.Do(t.Context(), harness.Key, func(ctx context.Context, _ sqlconn.Conn) error {
			time.Sleep(50 * time.Millisecond)
			return ctx.Err()
		}, advisory.MaxWait(10*time.Millisecond))
		if err != nil {
			t.Errorf("work longer than MaxWait: %v", err)
		}
	})
}

func TestCancelledWaitLeavesTheConnectionUsable(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a, b := p.NewConn(t), p.NewConn(t)
		pid := harness.Ask[int](t, b, "SELECT pg_backend_pid()")
		before := harness.SettingsOf(t, b)
		harness.TryLock(t, a, harness.Key)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- sqlconn.Lock(ctx, b, harness.Key) }()
		harness.Eventually(t, "b waits", func() bool { _, waiting := p.Locks(t); return waiting == 1 })
		cancel()
		err := <-done
		if !errors.Is(err, advisory.ErrNotAcquired) || !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if now := harness.Ask[int](t, b, "SELECT pg_backend_pid()"); now != pid {
			t.Error("the connection was replaced")
		}
		if after := harness.SettingsOf(t, b); after != before {
			t.Error("settings changed")
		}
		harness.Unlock(t, a, harness.Key)
		p.NoLocks(t)
	})
}

func TestDoReleasesAlways(t *testing.T) {
	errWork := errors.New("work failed")
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		if err := p.Do(t.Context(), harness.Key, func(ctx context.Context, c sqlconn.Conn) error {
			if held, _ := sqlconn.Held(ctx, c); len(held) != 1 {
				t.Errorf("inside: %v", held)
			}
			if ran, err := p.TryDo(ctx, harness.Key, func(context.Context, sqlconn.Conn) error { return nil }); ran || err != nil {
				t.Errorf("another TryDo: %v, %v", ran, err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		p.NoLocks(t)
		if err := p.Do(t.Context(), harness.Key, func(context.Context, sqlconn.Conn) error { return errWork }); err != errWork {
			t.Errorf("error of the work: %v", err)
		}
		p.NoLocks(t)
		if v := harness.PanicOf(func() {
			p.Do(t.Context(), harness.Key, func(context.Context, sqlconn.Conn) error { panic("at the disco") })
		}); v != "at the disco" {
			t.Errorf("panic: %v", v)
		}
		p.NoLocks(t)
		ctx, cancel := context.WithCancel(t.Context())
		if err := p.Do(ctx, harness.Key, func(ctx context.Context, _ sqlconn.Conn) error { cancel(); return ctx.Err() }); err != context.Canceled {
			t.Errorf("cancelled: %v", err)
		}
		p.NoLocks(t)
		var wg sync.WaitGroup
		wg.Go(func() {
			p.Do(context.Background(), harness.Key, func(context.Context, sqlconn.Conn) error { harness.ExitGoroutine(); return nil })
		})
		wg.Wait()
		p.NoLocks(t)
		if n := p.Stats().InUse; n != 0 {
			t.Errorf("%d connections are still in use", n)
		}
	})
}

func TestDoTellsThatTheLockWasLost(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		err := p.Do(t.Context(), harness.Key, func(ctx context.Context, c sqlconn.Conn) error {
			harness.DoSQL(t, p, "SELECT pg_terminate_backend($1)", harness.Ask[int](t, c, "SELECT pg_backend_pid()"))
			return nil
		})
		if !errors.Is(err, advisory.ErrLost) {
			t.Errorf("terminated: %v", err)
		}
		err = p.Do(t.Context(), harness.Key, func(ctx context.Context, c sqlconn.Conn) error {
			harness.DoSQL(t, c, "SELECT pg_advisory_unlock_all()")
			return nil
		})
		if !errors.Is(err, advisory.ErrLost) {
			t.Errorf("unlocked by hand: %v", err)
		}
		p.NoLocks(t)
	})
}

// The ctx of the work does not end with the connection. PingContext between its steps tells, in an open
// transaction too.
func TestWorkLearnsOfALossByPing(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		err := p.Do(t.Context(), harness.Key, func(ctx context.Context, c sqlconn.Conn) error {
			ping := c.(interface{ PingContext(context.Context) error }).PingContext
			if err := ping(ctx); err != nil {
				t.Errorf("before the loss: %v", err)
			}
			harness.DoSQL(t, c, "BEGIN")
			if err := ping(ctx); err != nil {
				t.Errorf("in a transaction: %v", err)
			}
			harness.DoSQL(t, c, "COMMIT")
			harness.DoSQL(t, p, "SELECT pg_terminate_backend($1)", harness.Ask[int](t, c, "SELECT pg_backend_pid()"))
			harness.Eventually(t, "a ping fails", func() bool { return ping(ctx) != nil })
			return ctx.Err()
		})
		if !errors.Is(err, advisory.ErrLost) || errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		p.NoLocks(t)
	})
}

func TestLockInsideATransactionOnTheConnection(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a, b := p.NewConn(t), p.NewConn(t)
		harness.TryLock(t, a, harness.Key)
		harness.DoSQL(t, b, "BEGIN")
		harness.DoSQL(t, b, "SET LOCAL lock_timeout = '77s'")
		before := harness.SettingsOf(t, b)
		if err := sqlconn.Lock(t.Context(), b, harness.Key, advisory.MaxWait(300*time.Millisecond)); !errors.Is(err, advisory.ErrNotAcquired) {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- sqlconn.Lock(context.Background(), b, harness.Key) }()
		time.Sleep(100 * time.Millisecond)
		if _, waiting := p.Locks(t); waiting != 0 {
			t.Error("it waits on the server, in a transaction that is not the package's")
		}
		harness.Unlock(t, a, harness.Key)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if after := harness.SettingsOf(t, b); after != before {
			t.Error("settings changed")
		}
		harness.DoSQL(t, b, "ROLLBACK")
		harness.Unlock(t, b, harness.Key) // session locks outlast the transaction
	})
}

func TestPlainWait(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a, b, c := p.NewConn(t), p.NewConn(t), p.NewConn(t)
		harness.TryLock(t, a, harness.Key)
		done := make(chan error, 1)
		go func() { done <- sqlconn.Lock(context.Background(), b, harness.Key, sqlconn.PlainWait()) }()
		harness.Eventually(t, "b waits", func() bool { _, waiting := p.Locks(t); return waiting == 1 })
		err := sqlconn.Lock(t.Context(), c, harness.Key, sqlconn.PlainWait(), advisory.MaxWait(100*time.Millisecond))
		if !errors.Is(err, advisory.ErrNotAcquired) {
			t.Errorf("MaxWait: %v", err)
		}
		harness.Unlock(t, a, harness.Key)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		harness.Unlock(t, b, harness.Key)
		p.NoLocks(t)
	})
}
