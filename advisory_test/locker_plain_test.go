package advisory_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// A lockAnswer is what Lock of a Locker returned.
type lockAnswer struct {
	lock advisory.Lock
	err  error
}

func lockLater(ctx context.Context, l *locker.Locker, opts ...advisory.ConnOption) <-chan lockAnswer {
	answer := make(chan lockAnswer, 1)
	go func() {
		lock, err := l.Lock(ctx, key, opts...)
		answer <- lockAnswer{lock, err}
	}()
	return answer
}

func (p *pool) waits(t testing.TB, n int) {
	t.Helper()
	eventually(t, "so many wait on the server", func() bool { _, w := p.locks(t); return w == n })
}

// plainWaiter is when the transaction began that waits, and its pid.
func (p *pool) plainWaiter(t testing.TB) (began string, pid int) {
	t.Helper()
	p.waits(t, 1)
	const from = " FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '/*pgadvisory waits%' AND wait_event = 'advisory'"
	return ask[string](t, p, "SELECT coalesce(min(xact_start)::text, '')"+from), ask[int](t, p, "SELECT coalesce(min(pid), 0)"+from)
}

func TestPlainWaitOfALockerIsOnePiece(t *testing.T) {
	pgtest.Slow(t)
	fair(t, func(t *testing.T, p *pool) {
		holder := p.conn(t)
		tryLock(t, holder, key)
		l := p.locker(t, locker.WithFailover(quickFailover)) // slices would be of half a second
		answer := lockLater(context.Background(), l, sqlconn.PlainWait())
		first, _ := p.plainWaiter(t)
		time.Sleep(3 * time.Second)
		if later, _ := p.plainWaiter(t); later != first || first == "" {
			t.Errorf("it began at %s, and again at %s", first, later)
		}
		unlock(t, holder, key)
		a := <-answer
		if a.err != nil {
			t.Fatal(a.err)
		}
		if tryLockAgain(t, holder) {
			t.Error("two have it")
		}
		time.Sleep(2 * heartbeat)
		if err := a.lock.Context().Err(); err != nil {
			t.Error(err)
		}
		if err := a.lock.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

func tryLockAgain(t *testing.T, conn sqlconn.Conn) bool {
	t.Helper()
	ok, err := sqlconn.TryLock(context.Background(), conn, key)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// The caller whose plain wait ended leaves nothing, and those behind it wait on, in slices.
func TestPlainWaitOfALockerEndsWithItsCaller(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t)
	atOnce(t, func(all *together) {
		for _, d := range drivers[:2] {
			all.run(d.name, func(t *testing.T) {
				p := d.open(t, server.Database(t))
				holder := p.conn(t)
				tryLock(t, holder, key)
				l := p.locker(t, locker.WithFailover(quickFailover))
				ctx, cancel := context.WithCancel(context.Background())
				first := lockLater(ctx, l, sqlconn.PlainWait())
				began, _ := p.plainWaiter(t)
				second := lockLater(context.Background(), l)
				cancel()
				if a := <-first; !errors.Is(a.err, advisory.ErrNotAcquired) || !errors.Is(a.err, context.Canceled) {
					t.Error(a.err)
				}
				eventually(t, "the other waits, in slices", func() bool {
					again, _ := p.plainWaiter(t)
					return again != began && again != ""
				})
				if _, err := l.Lock(context.Background(), key, sqlconn.PlainWait(), advisory.MaxWait(50*time.Millisecond)); !errors.Is(err, advisory.ErrNotAcquired) {
					t.Error(err)
				}
				unlock(t, holder, key)
				a := <-second
				if a.err != nil {
					t.Fatal(a.err)
				}
				if err := a.lock.Unlock(); err != nil {
					t.Error(err)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				p.noLocks(t)
				silent(t, server, p)
			})
		}
	})
}

// A session that waits without end has no deadline. That it is gone is seen all the same.
func TestPlainWaitOfALockerOutlivesItsSession(t *testing.T) {
	fair(t, func(t *testing.T, p *pool) {
		holder := p.conn(t)
		tryLock(t, holder, key)
		answer := lockLater(context.Background(), p.locker(t, locker.WithFailover(quickFailover)), sqlconn.PlainWait())
		_, pid := p.plainWaiter(t)
		if !ask[bool](t, p, "SELECT pg_terminate_backend($1)", pid) {
			t.Fatal("not terminated")
		}
		eventually(t, "another session waits", func() bool { _, now := p.plainWaiter(t); return now != 0 && now != pid })
		unlock(t, holder, key)
		a := <-answer
		if a.err != nil {
			t.Fatal(a.err)
		}
		if err := a.lock.Unlock(); err != nil {
			t.Error(err)
		}
	})
}
