package conn_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/locker"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// panicking panics when it is told of the nth lock that was acquired.
type panicking struct{ n *int }

var errObserver = errors.New("observer")

func (o panicking) Observe(_ context.Context, e advisory.Event) {
	if e.Kind == advisory.Acquired {
		if *o.n--; *o.n == 0 {
			panic(errObserver)
		}
	}
}

func panicAt(n int) advisory.Option { return advisory.WithObserver(panicking{&n}) }

// Where the Observer panics nobody learns that the lock is held: it is not.
func TestObserverThatPanicsLeavesNoLock(t *testing.T) {
	ctx := context.Background()
	keys := []advisory.Key{advisory.Int64(1), advisory.Int64(2), advisory.Int64(3)}
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		panics := func(name string, f func()) {
			t.Helper()
			if v := harness.PanicOf(f); v != errObserver {
				t.Errorf("%s: panic %v", name, v)
			}
			p.NoLocks(t)
		}
		work := func(context.Context, sqlconn.Conn) error { return nil }
		onConn := func(f func(c sqlconn.Conn)) func() {
			return func() {
				conn := p.NewConn(t)
				defer conn.Close()
				f(conn)
			}
		}
		panics("Lock", onConn(func(c sqlconn.Conn) { sqlconn.Lock(ctx, c, harness.Key, panicAt(1)) }))
		panics("TryLock", onConn(func(c sqlconn.Conn) { sqlconn.TryLock(ctx, c, harness.Key, panicAt(1)) }))
		panics("Do", func() { p.Do(ctx, harness.Key, work, panicAt(1)) })
		panics("TryDo", func() { p.TryDo(ctx, harness.Key, work, panicAt(1)) })

		l := locker.New(p.DB)
		defer l.Close()
		panics("Locker.Lock", func() { l.Lock(ctx, harness.Key, panicAt(1)) })
		panics("Locker.TryLock", func() { l.TryLock(ctx, harness.Key, panicAt(1)) })
		panics("Locker.Do", func() { l.Do(ctx, harness.Key, func(context.Context) error { return nil }, panicAt(1)) })
		panics("Locker.LockAny", func() { l.LockAny(ctx, keys, panicAt(1)) })
		panics("Locker.TryLockAny", func() { l.TryLockAny(ctx, keys, panicAt(1)) })
		for n := 1; n <= len(keys); n++ {
			panics("Locker.TryLockAll", func() { l.TryLockAll(ctx, keys, panicAt(n)) })
			panics("Locker.LockAll", func() { l.LockAll(ctx, keys, panicAt(n)) })
			panics("Locker.LockAll, one that is busy", func() {
				busy, err := l.Lock(ctx, keys[n-1])
				if err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(20*time.Millisecond, func() { busy.Unlock() })
				l.LockAll(ctx, keys, panicAt(len(keys)))
			})
		}
	})
}
