package conn_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// What a lock of any Locker is told of, the contract checks. Here are the sessions of
// *locker.Locker, its calls for several keys, and the calls of sqlconn and xact.

// of returns the events of a kind.
func of(r *harness.Recorder, kind advisory.EventKind) (events []advisory.Event) {
	for _, e := range r.All() {
		if e.Kind == kind {
			events = append(events, e)
		}
	}
	return events
}

// tellsOf waits until there are n events of a kind.
func tellsOf(r *harness.Recorder, t *testing.T, n int, kind advisory.EventKind) []advisory.Event {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%d %v", n, kind), func() bool { return len(of(r, kind)) >= n })
	if events := of(r, kind); len(events) > n {
		t.Errorf("%+v; want %d", events, n)
	}
	return of(r, kind)
}

func TestObserverOfALocker(t *testing.T) {
	harness.EachDriverOfPools(t, func(t *testing.T, p *harness.Pool) {
		var r harness.Recorder
		l := p.Locker(t, advisory.WithObserver(&r), locker.WithApplicationName("observed"))
		r.Are(t) // nothing is opened before it is needed
		lock, _ := harness.LockerTry(t, l, harness.Key, advisory.Label("account"))
		pid := harness.Ask[int](t, p, "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'observed'")
		harness.Release(t, lock)
		harness.Release(t, harness.First(harness.LockerTry(t, l, harness.Key)))
		l.Close()
		events := r.Are(t, advisory.SessionOpened, advisory.Acquired, advisory.Released, advisory.Acquired, advisory.Released, advisory.SessionClosed)
		for i, e := range events {
			if e.PID != pid || e.Err != nil {
				t.Errorf("%+v; want pid %d", e, pid)
			}
			if session := i == 0 || i == 5; session != e.Key.IsZero() || session && (e.Waited != 0 || e.Held != 0) {
				t.Errorf("%+v", e)
			}
		}
		if events[1].Label != "account" || events[2].Label != "account" || events[3].Label != "" {
			t.Errorf("%+v", events)
		}
	})
}

func TestObserverOfACallIsToldInPlaceOfTheLockers(t *testing.T) {
	p := harness.Drivers[0].Open(t, pgtest.URL(t))
	var ofLocker, ofCall harness.Recorder
	l := p.Locker(t, advisory.WithObserver(&ofLocker))
	harness.Release(t, harness.First(harness.LockerTry(t, l, harness.Key, advisory.WithObserver(&ofCall))))
	harness.Release(t, harness.First(harness.LockerTry(t, l, harness.Key, advisory.WithObserver(nil))))
	ofCall.Are(t, advisory.Acquired, advisory.Released)
	ofLocker.Are(t, advisory.SessionOpened, advisory.Acquired, advisory.Released)
}

func TestObserverIsToldOfTheLossOfEachLock(t *testing.T) {
	pgtest.Slow(t)
	harness.EachDriverOfPools(t, func(t *testing.T, p *harness.Pool) {
		var r harness.Recorder
		l := p.Locker(t, advisory.WithObserver(&r), locker.WithApplicationName("observed"))
		locks := advisory.Locks{harness.First(harness.LockerTry(t, l, harness.Key)), harness.First(harness.LockerTry(t, l, advisory.Int64(1), advisory.Shared)), harness.First(harness.LockerTry(t, l, advisory.Int64(1), advisory.Shared))}
		harness.DoSQL(t, p, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'observed'")
		pid := tellsOf(&r, t, 1, advisory.SessionOpened)[0].PID
		for _, e := range tellsOf(&r, t, len(locks), advisory.Lost) {
			if !errors.Is(e.Err, advisory.ErrLost) || e.PID != pid || e.Held <= 0 || e.Key.IsZero() {
				t.Errorf("%+v", e)
			}
		}
		if e := tellsOf(&r, t, 1, advisory.SessionClosed)[0]; e.PID != pid || e.Err == nil {
			t.Errorf("%+v", e)
		}
		locks.Unlock()
		if events := of(&r, advisory.Released); len(events) != 0 {
			t.Errorf("%+v: each hold ends once", events)
		}
	})
}

// A release that fails for the session is gone is a loss, of which nobody had heard.
func TestObserverIsToldOfALossThatTheReleaseFinds(t *testing.T) {
	harness.EachDriverOfPools(t, func(t *testing.T, p *harness.Pool) {
		l := p.Locker(t, locker.WithHeartbeat(999*time.Millisecond), locker.WithApplicationName("observed"))
		for range 5 {
			var r harness.Recorder
			lock, _ := harness.LockerTry(t, l, harness.Key, advisory.WithObserver(&r))
			harness.DoSQL(t, p, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'observed'")
			harness.Eventually(t, "the session has ended", func() bool {
				return harness.Ask[int](t, p, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'observed'") == 0
			})
			if err := lock.Unlock(); !errors.Is(err, advisory.ErrLost) {
				t.Errorf("Unlock: %v", err)
			}
			events := r.Are(t, advisory.Acquired, advisory.Lost)
			if !errors.Is(events[1].Err, advisory.ErrLost) {
				t.Errorf("%+v", events[1])
			}
		}
	})
}

func TestObserverIsToldWhatStayedInTheProcess(t *testing.T) {
	harness.EachDriverOfPools(t, func(t *testing.T, p *harness.Pool) {
		l := p.Locker(t)
		handedOver := false
		// Only for a short time is a lock handed over, which a busy machine may miss.
		for end := time.Now().Add(harness.Patience); !handedOver && time.Now().Before(end); {
			var r, next harness.Recorder
			lock, _ := harness.LockerTry(t, l, harness.Key, advisory.WithObserver(&r))
			got := make(chan advisory.Lock)
			go func() {
				lock, err := l.Lock(context.Background(), harness.Key, advisory.WithObserver(&next))
				if err != nil {
					t.Error(err)
				}
				got <- lock
			}()
			harness.Eventually(t, "it waits", func() bool { return l.Stats().Waiting == 1 })
			harness.Release(t, lock)
			harness.Release(t, <-got)
			released, acquired := r.Are(t, advisory.Acquired, advisory.Released)[1], next.Are(t, advisory.Acquired, advisory.Released)[0]
			if released.Local != acquired.Local {
				t.Errorf("%+v, then %+v", released, acquired)
			}
			handedOver = acquired.Local
		}
		if !handedOver {
			t.Error("never handed over")
		}
	})
}

func TestObserverOfCallsForSeveralKeys(t *testing.T) {
	harness.EachDriverOfPools(t, func(t *testing.T, p *harness.Pool) {
		l, other := p.Locker(t), p.Locker(t)
		keys := harness.KeysUpTo(3)
		keysOf := func(events []advisory.Event) (keys []advisory.Key) {
			for _, e := range events {
				keys = append(keys, e.Key)
			}
			slices.SortFunc(keys, func(a, b advisory.Key) int {
				x, _ := a.Int64()
				y, _ := b.Int64()
				return int(x - y)
			})
			return keys
		}
		observed := func(call func(advisory.ObserverOption), kinds ...advisory.EventKind) []advisory.Event {
			t.Helper()
			var r harness.Recorder
			call(advisory.WithObserver(&r))
			return r.Are(t, kinds...)
		}
		A, R, N := advisory.Acquired, advisory.Released, advisory.NotAcquired

		events := observed(func(o advisory.ObserverOption) {
			locks, _, err := l.TryLockAll(t.Context(), keys, o)
			if err != nil {
				t.Error(err)
			}
			locks.Unlock()
		}, A, A, A, R, R, R)
		if !slices.Equal(keysOf(events[:3]), keys) || !slices.Equal(keysOf(events[3:]), keys) {
			t.Errorf("%+v", events)
		}

		taken, _ := harness.LockerTry(t, other, keys[0])
		events = observed(func(o advisory.ObserverOption) { l.TryLockAll(t.Context(), keys[:2], o) }, N, A, R)
		if !slices.Equal(keysOf(events), []advisory.Key{keys[0], keys[1], keys[1]}) || events[0].Err != nil {
			t.Errorf("%+v", events)
		}
		// A first try of a wait is no event.
		events = observed(func(o advisory.ObserverOption) {
			l.LockAll(t.Context(), keys[:1], o, advisory.MaxWait(20*time.Millisecond))
		}, N)
		if e := events[0]; e.Key != keys[0] || !errors.Is(e.Err, advisory.ErrNotAcquired) {
			t.Errorf("%+v", events)
		}
		events = observed(func(o advisory.ObserverOption) {
			got := make(chan advisory.Locks)
			go func() {
				locks, err := l.LockAll(context.Background(), keys[:1], o)
				if err != nil {
					t.Error(err)
				}
				got <- locks
			}()
			harness.Eventually(t, "it waits", func() bool { return l.Stats().Waiting == 1 })
			time.Sleep(20 * time.Millisecond)
			harness.Release(t, taken)
			(<-got).Unlock()
		}, A, R)
		if events[0].Waited < 20*time.Millisecond {
			t.Errorf("%+v", events)
		}

		taken, _ = harness.LockerTry(t, other, keys[0])
		events = observed(func(o advisory.ObserverOption) {
			lock, err := l.LockAny(t.Context(), keys, o)
			if err != nil {
				t.Error(err)
			}
			lock.Unlock()
		}, A, R)
		if events[0].Key != keys[1] || events[1].Key != keys[1] {
			t.Errorf("%+v", events)
		}
		events = observed(func(o advisory.ObserverOption) {
			l.TryLockAny(t.Context(), keys[:1], o)
			l.LockAny(t.Context(), keys[:1], o, advisory.MaxWait(0))
			l.LockAny(t.Context(), keys[:1], o, advisory.MaxWait(20*time.Millisecond))
			l.LockAny(harness.Cancelled(t), keys[1:], o)
		}, N, N, N, N)
		if events[0].Err != nil || events[2].Waited < 20*time.Millisecond || !errors.Is(events[3].Err, context.Canceled) {
			t.Errorf("%+v", events)
		}
		harness.Release(t, taken)

		events = observed(func(o advisory.ObserverOption) {
			l.Semaphore(harness.Key, 3).Do(t.Context(), func(context.Context) error { return nil }, o, advisory.Label("slot"))
		}, A, R)
		if events[0].Key == harness.Key || events[0].Key != events[1].Key || events[0].Label != "slot" {
			t.Errorf("%+v", events)
		}
		events = observed(func(o advisory.ObserverOption) {
			l.Lead(t.Context(), harness.Key, func(context.Context) error { return nil }, o)
			l.Wrap(harness.Key, func(context.Context) error { return nil }, o)(t.Context())
		}, A, R, A, R)
		if events[0].Key != harness.Key || events[2].Key != harness.Key {
			t.Errorf("%+v", events)
		}
	})
}

func TestObserverOfCallsOnAConn(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a, b := p.NewConn(t), p.NewConn(t)
		var r harness.Recorder
		opts := []advisory.ConnOption{advisory.Shared, advisory.Label("account"), advisory.WithObserver(&r)}
		harness.TryLock(t, a, harness.Key, opts...)
		harness.Unlock(t, a, harness.Key, opts...)
		if err := sqlconn.Lock(t.Context(), a, harness.Key, opts...); err != nil {
			t.Error(err)
		}
		harness.Unlock(t, a, harness.Key, opts...)
		harness.TryLock(t, b, harness.Key)
		harness.TryLock(t, a, harness.Key, opts...)
		sqlconn.Lock(t.Context(), a, harness.Key, append(opts, advisory.MaxWait(20*time.Millisecond))...)
		harness.Unlock(t, b, harness.Key)
		p.Do(t.Context(), harness.Key, func(context.Context, sqlconn.Conn) error { time.Sleep(20 * time.Millisecond); return nil }, opts...)
		p.TryDo(t.Context(), harness.Key, func(context.Context, sqlconn.Conn) error { return errors.New("it fails") }, opts...)
		p.Do(t.Context(), harness.Key, func(ctx context.Context, conn sqlconn.Conn) error {
			conn.ExecContext(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
			return nil
		}, opts...)
		A, R, N, L := advisory.Acquired, advisory.Released, advisory.NotAcquired, advisory.Lost
		events := r.Are(t, A, R, A, R, N, N, A, R, A, R, A, L)
		for _, e := range events {
			harness.IsOf(t, e, harness.Key, advisory.Shared, "account")
		}
		if e := events[4]; e.Err != nil {
			t.Errorf("a try: %+v", e)
		}
		if e := events[5]; !errors.Is(e.Err, advisory.ErrNotAcquired) || e.Waited < 20*time.Millisecond {
			t.Errorf("a wait: %+v", e)
		}
		if e := events[7]; e.Held < 20*time.Millisecond || e.Err != nil {
			t.Errorf("Do: %+v", e)
		}
		if e := events[11]; e.Held <= 0 || e.Err == nil {
			t.Errorf("Do on a connection that has gone: %+v", e)
		}
	})
}

func TestObserverOfCallsInATransaction(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		var r harness.Recorder
		opts := []advisory.TxOption{advisory.Shared, advisory.Label("account"), advisory.WithObserver(&r)}
		tx := p.Tx(t, nil)
		ctx := t.Context()
		if ok, err := xact.TryLock(ctx, tx, harness.Key, opts...); !ok || err != nil {
			t.Error(ok, err)
		}
		if err := xact.LockAll(ctx, tx, []advisory.Key{advisory.Int64(2), advisory.Int64(1)}, opts...); err != nil {
			t.Error(err)
		}
		tx.Rollback() // of which the library does not know
		conn := p.NewConn(t)
		harness.TryLock(t, conn, harness.Key)
		tx = p.Tx(t, nil)
		xact.TryLock(ctx, tx, harness.Key, opts...)
		xact.Lock(ctx, tx, harness.Key, append(opts, advisory.MaxWait(20*time.Millisecond))...)
		tx.Rollback()
		harness.Unlock(t, conn, harness.Key)
		p.TxDo(ctx, harness.Key, func(context.Context, xact.Tx) error { time.Sleep(20 * time.Millisecond); return nil }, harness.OptionsAs[xact.BeginOption](opts)...)
		p.TxTryDo(ctx, harness.Key, func(context.Context, xact.Tx) error { return errors.New("it fails") }, harness.OptionsAs[xact.BeginOption](opts)...)
		func() {
			defer func() { recover() }()
			p.TxDo(ctx, harness.Key, func(context.Context, xact.Tx) error { panic("panic") }, append(harness.OptionsAs[xact.BeginOption](opts), xact.TxOptions(&sql.TxOptions{Isolation: sql.LevelSerializable}))...)
		}()
		A, R, N := advisory.Acquired, advisory.Released, advisory.NotAcquired
		events := r.Are(t, A, A, A, N, N, A, R, A, R, A, R)
		for i, e := range events {
			k := harness.Key
			if i == 1 || i == 2 {
				k = advisory.Int64(int64(i))
			}
			harness.IsOf(t, e, k, advisory.Shared, "account")
			if i != 4 && e.Err != nil {
				t.Errorf("%+v", e)
			}
		}
		if e := events[4]; !errors.Is(e.Err, advisory.ErrNotAcquired) || e.Waited < 20*time.Millisecond {
			t.Errorf("a wait: %+v", e)
		}
		if e := events[6]; e.Held < 20*time.Millisecond {
			t.Errorf("Do: %+v", e)
		}
	})
}

// Every kind of wait that lasts is reported with the holders, and goes on.
func TestObserverIsToldOfLongWaits(t *testing.T) {
	for _, d := range harness.Drivers[:2] {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			const after = 300 * time.Millisecond
			p := d.Open(t, pgtest.URL(t))
			holder, l := p.Locker(t), p.Locker(t)
			soon := p.Locker(t, advisory.WithWaitingAfter(after))
			calls := map[string]func(k advisory.Key, o, w advisory.ObserverOption) error{
				"Locker.Lock": func(k advisory.Key, o, w advisory.ObserverOption) error {
					return harness.Second(l.Lock(context.Background(), k, o, w))
				},
				"Locker.Lock, behind another of the process": func(k advisory.Key, o, w advisory.ObserverOption) error {
					return harness.Second(holder.Lock(context.Background(), k, o, w))
				},
				"Locker.Lock, the time is of New": func(k advisory.Key, o, _ advisory.ObserverOption) error {
					return harness.Second(soon.Lock(context.Background(), k, o))
				},
				"Locker.Do": func(k advisory.Key, o, w advisory.ObserverOption) error {
					return l.Do(context.Background(), k, func(context.Context) error { return nil }, o, w)
				},
				"Locker.LockAll": func(k advisory.Key, o, w advisory.ObserverOption) error {
					return harness.Second(l.LockAll(context.Background(), []advisory.Key{k}, o, w))
				},
				"Locker.LockAny": func(k advisory.Key, o, w advisory.ObserverOption) error {
					return harness.Second(l.LockAny(context.Background(), []advisory.Key{k}, o, w))
				},
				"sqlconn.Lock": func(k advisory.Key, o, w advisory.ObserverOption) error {
					return sqlconn.Lock(context.Background(), p.NewConn(t), k, o, w)
				},
				"sqlconn.Lock, PlainWait": func(k advisory.Key, o, w advisory.ObserverOption) error {
					return sqlconn.Lock(context.Background(), p.NewConn(t), k, o, w, sqlconn.PlainWait())
				},
				"xact.Lock": func(k advisory.Key, o, w advisory.ObserverOption) error {
					return xact.Lock(context.Background(), p.Tx(t, nil), k, o, w)
				},
				"xact.Do": func(k advisory.Key, o, w advisory.ObserverOption) error {
					return p.TxDo(context.Background(), k, func(context.Context, xact.Tx) error { return nil }, o, w)
				},
			}
			var locks advisory.Locks
			var wg sync.WaitGroup
			recorders := map[string]*harness.Recorder{}
			for name, call := range calls {
				k := advisory.Name(name)
				lock, _ := harness.LockerTry(t, holder, k)
				locks = append(locks, lock)
				r := &harness.Recorder{}
				recorders[name] = r
				wg.Go(func() {
					if err := call(k, advisory.WithObserver(r), advisory.WithWaitingAfter(after)); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			for name, r := range recorders {
				harness.Eventually(t, name+" is told of", func() bool { return len(r.All()) > 0 })
				if e := r.All()[0]; e.Kind != advisory.Waiting || e.Key != advisory.Name(name) || e.Waited < after || e.Err != nil {
					t.Errorf("%s: %+v", name, e)
				} else if name == "sqlconn.Lock, PlainWait" {
					if e.Holders != nil { // its connection is busy
						t.Errorf("%s: %+v", name, e)
					}
				} else if len(e.Holders) != 1 || e.Holders[0].Key != e.Key || e.Holders[0].PID == 0 || e.Holders[0].EndSQL() == "" ||
					e.Holders[0].Local != (name == "Locker.Lock, behind another of the process") {
					t.Errorf("%s: holders %+v", name, e.Holders)
				}
			}
			if err := locks.Unlock(); err != nil {
				t.Error(err)
			}
			wg.Wait()
			for name, r := range recorders {
				if got := slices.Index(r.Kinds(), advisory.Acquired); got < 1 || slices.Contains(r.Kinds()[got:], advisory.Waiting) {
					t.Errorf("%s: %+v", name, r.All())
				}
			}
		})
	}
}

// A blocker is an Observer that does not return from events of one kind before it is let go.
type blocker struct {
	kind    advisory.EventKind
	blocked chan struct{} // gets one for each
	letGo   chan struct{}
}

func newBlocker(kind advisory.EventKind) *blocker {
	return &blocker{kind, make(chan struct{}, 100), make(chan struct{})}
}

func (b *blocker) Observe(_ context.Context, e advisory.Event) {
	if e.Kind == b.kind {
		b.blocked <- struct{}{}
		<-b.letGo
	}
}

func TestObserverThatBlocksHoldsUpNoLossOfOthers(t *testing.T) {
	pgtest.Slow(t)
	harness.EachDriverOfPools(t, func(t *testing.T, p *harness.Pool) {
		b := newBlocker(advisory.Lost)
		ofLocker := newBlocker(advisory.SessionClosed)
		var r harness.Recorder
		l := p.Locker(t, advisory.WithObserver(ofLocker), locker.WithApplicationName("observed"))
		var locks advisory.Locks
		for i, k := range harness.KeysUpTo(10) {
			var o advisory.Observer = b
			if i%2 == 1 {
				o = &r
			}
			locks = append(locks, harness.First(harness.LockerTry(t, l, k, advisory.WithObserver(o))))
		}
		harness.DoSQL(t, p, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'observed'")
		for _, lock := range locks {
			harness.Ended(t, lock.Context(), advisory.ErrLost)
		}
		for range 5 {
			harness.Receive(t, b.blocked)
		}
		harness.Receive(t, ofLocker.blocked)
		r.Are(t, advisory.Acquired, advisory.Acquired, advisory.Acquired, advisory.Acquired, advisory.Acquired, advisory.Lost, advisory.Lost, advisory.Lost, advisory.Lost, advisory.Lost)
		// The Locker goes on.
		harness.Eventually(t, "the key is free", func() bool {
			lock, ok := harness.LockerTry(t, l, harness.KeysUpTo(1)[0])
			if ok {
				harness.Release(t, lock)
			}
			return ok
		})
		if err := locks.Unlock(); !errors.Is(err, advisory.ErrLost) {
			t.Error(err)
		}
		close(b.letGo)
		close(ofLocker.letGo)
	})
}

func TestObserverThatBlocksHoldsUpItsCallAlone(t *testing.T) {
	harness.EachDriverOfPools(t, func(t *testing.T, p *harness.Pool) {
		l := p.Locker(t)
		for _, kind := range []advisory.EventKind{advisory.Acquired, advisory.Released} {
			b := newBlocker(kind)
			done := make(chan struct{})
			go func() {
				defer close(done)
				l.Do(context.Background(), harness.Key, func(context.Context) error { return nil }, advisory.WithObserver(b))
			}()
			harness.Receive(t, b.blocked)
			for _, k := range harness.KeysUpTo(10) {
				harness.Release(t, harness.First(harness.LockerTry(t, l, k)))
			}
			if _, free := harness.LockerTry(t, l, harness.Key); free != (kind == advisory.Released) {
				t.Errorf("told of %v: free: %v", kind, free)
			}
			close(b.letGo)
			harness.Receive(t, done)
			if kind == advisory.Acquired {
				harness.Eventually(t, "it is free", func() bool { return !l.Holds(harness.Key) })
			}
		}
	})
}

// observing is an Observer that looks up a lock and asks the Locker back.
type observing struct {
	harness.Recorder
	l *locker.Locker
}

func (o *observing) Observe(ctx context.Context, e advisory.Event) {
	o.l.Stats()
	o.l.Holds(e.Key)
	if e.Kind == advisory.Acquired {
		lock, ok, err := o.l.TryLock(context.Background(), advisory.Int64(1))
		if !ok || err != nil {
			e.Err = errors.Join(errors.New("the Locker does not answer"), err)
		}
		lock.Unlock()
	}
	if v := ctx.Value(harness.Word{}); v != "here" {
		e.Err = errors.Join(e.Err, fmt.Errorf("ctx has %v", v))
	}
	o.Recorder.Observe(ctx, e)
}

func TestObserverMayAskTheLockerAndHasTheValuesOfCtx(t *testing.T) {
	pgtest.Slow(t)
	harness.EachDriverOfPools(t, func(t *testing.T, p *harness.Pool) {
		o := &observing{l: p.Locker(t, locker.WithApplicationName("observed"))}
		ctx := context.WithValue(t.Context(), harness.Word{}, "here")
		if err := o.l.Do(ctx, harness.Key, func(context.Context) error { return nil }, advisory.WithObserver(o)); err != nil {
			t.Error(err)
		}
		err := o.l.Do(ctx, harness.Key, func(ctx context.Context) error {
			harness.DoSQL(t, p, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'observed'")
			<-ctx.Done()
			return nil
		}, advisory.WithObserver(o))
		if !errors.Is(err, advisory.ErrLost) {
			t.Error(err)
		}
		events := o.Are(t, advisory.Acquired, advisory.Released, advisory.Acquired, advisory.Lost)
		for _, e := range events[:3] {
			if e.Err != nil {
				t.Errorf("%+v", e)
			}
		}
	})
}
