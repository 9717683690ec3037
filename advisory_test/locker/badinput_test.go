package locker_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/adapt"
	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/option"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// A lockerCall is a call of a Locker, or of what it makes, that takes a lock.
type lockerCall func(ctx context.Context, l *locker.Locker, k advisory.Key, fn func(context.Context) error, opts ...advisory.LockerOption) error

// plainCalls return a lock; workCalls run fn; manyCalls take several keys.
var (
	plainCalls = map[string]lockerCall{
		"TryLock": func(ctx context.Context, l *locker.Locker, k advisory.Key, _ func(context.Context) error, opts ...advisory.LockerOption) error {
			lock, ok, err := l.TryLock(ctx, k, opts...)
			return refused(ok && lock.Unlock() == nil, err)
		},
		"Lock": func(ctx context.Context, l *locker.Locker, k advisory.Key, _ func(context.Context) error, opts ...advisory.LockerOption) error {
			lock, err := l.Lock(ctx, k, opts...)
			lock.Unlock()
			return err
		},
		"Semaphore.TryAcquire": func(ctx context.Context, l *locker.Locker, k advisory.Key, _ func(context.Context) error, opts ...advisory.LockerOption) error {
			lock, ok, err := l.Semaphore(k, 3).TryAcquire(ctx, harness.OptionsAs[advisory.SemaphoreOption](opts)...)
			return refused(ok && lock.Unlock() == nil, err)
		},
		"Semaphore.Acquire": func(ctx context.Context, l *locker.Locker, k advisory.Key, _ func(context.Context) error, opts ...advisory.LockerOption) error {
			lock, err := l.Semaphore(k, 3).Acquire(ctx, harness.OptionsAs[advisory.SemaphoreOption](opts)...)
			lock.Unlock()
			return err
		},
	}
	workCalls = map[string]lockerCall{
		"TryDo": func(ctx context.Context, l *locker.Locker, k advisory.Key, fn func(context.Context) error, opts ...advisory.LockerOption) error {
			ran, err := l.TryDo(ctx, k, fn, opts...)
			return refused(ran, err)
		},
		"Do": func(ctx context.Context, l *locker.Locker, k advisory.Key, fn func(context.Context) error, opts ...advisory.LockerOption) error {
			return l.Do(ctx, k, fn, opts...)
		},
		"Wrap": func(ctx context.Context, l *locker.Locker, k advisory.Key, fn func(context.Context) error, opts ...advisory.LockerOption) error {
			return l.Wrap(k, fn, opts...)(ctx)
		},
		"Lead": func(ctx context.Context, l *locker.Locker, k advisory.Key, fn func(context.Context) error, opts ...advisory.LockerOption) error {
			return l.Lead(ctx, k, fn, opts...)
		},
		"Semaphore.TryDo": func(ctx context.Context, l *locker.Locker, k advisory.Key, fn func(context.Context) error, opts ...advisory.LockerOption) error {
			ran, err := l.Semaphore(k, 3).TryDo(ctx, fn, harness.OptionsAs[advisory.SemaphoreOption](opts)...)
			return refused(ran, err)
		},
		"Semaphore.Do": func(ctx context.Context, l *locker.Locker, k advisory.Key, fn func(context.Context) error, opts ...advisory.LockerOption) error {
			return l.Semaphore(k, 3).Do(ctx, fn, harness.OptionsAs[advisory.SemaphoreOption](opts)...)
		},
	}
	manyCalls = map[string]func(ctx context.Context, l *locker.Locker, keys []advisory.Key, opts ...advisory.LockerOption) error{
		"TryLockAll": func(ctx context.Context, l *locker.Locker, keys []advisory.Key, opts ...advisory.LockerOption) error {
			locks, ok, err := l.TryLockAll(ctx, keys, opts...)
			return refused(ok && locks.Unlock() == nil, err)
		},
		"LockAll": func(ctx context.Context, l *locker.Locker, keys []advisory.Key, opts ...advisory.LockerOption) error {
			locks, err := l.LockAll(ctx, keys, opts...)
			locks.Unlock()
			return err
		},
		"TryLockAny": func(ctx context.Context, l *locker.Locker, keys []advisory.Key, opts ...advisory.LockerOption) error {
			lock, ok, err := l.TryLockAny(ctx, keys, opts...)
			return refused(ok && lock.Unlock() == nil, err)
		},
		"LockAny": func(ctx context.Context, l *locker.Locker, keys []advisory.Key, opts ...advisory.LockerOption) error {
			lock, err := l.LockAny(ctx, keys, opts...)
			lock.Unlock()
			return err
		},
	}
)

// refused is the error of a try, which had better not have been granted.
func refused(granted bool, err error) error {
	if granted {
		return errors.Join(errors.New("it was granted"), err)
	}
	return err
}

// everyCall calls each of them that opts fit with one key, and check with what it returns.
func everyCall(t *testing.T, l *locker.Locker, k advisory.Key, opts []advisory.LockerOption, check func(name string, err error)) {
	t.Helper()
	everyCallWith(t.Context(), t, l, k, opts, check)
}

func everyCallWith(ctx context.Context, t *testing.T, l *locker.Locker, k advisory.Key, opts []advisory.LockerOption, check func(name string, err error)) {
	t.Helper()
	fn := func(context.Context) error { t.Error("fn runs"); return nil }
	for _, calls := range []map[string]lockerCall{plainCalls, workCalls} {
		for name, call := range calls {
			if strings.HasPrefix(name, "Semaphore.") && !harness.OptionsFit[advisory.SemaphoreOption](opts) {
				continue // a Mode
			}
			check(name, call(ctx, l, k, fn, opts...))
		}
	}
	for name, call := range manyCalls {
		keys := []advisory.Key{k}
		if k != harness.Key {
			keys = []advisory.Key{harness.Key, k}
		}
		check(name, call(ctx, l, keys, opts...))
	}
}

// says fails the test unless err says what it is about.
func says(t *testing.T, what string, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("%s: %v; want %q", what, err, words)
	}
}

func TestLockerWithoutAContext(t *testing.T) {
	l := harness.Drivers[0].Open(t, pgtest.URL(t)).Locker(t)
	var none context.Context
	everyCallWith(none, t, l, harness.Key, nil, func(name string, err error) { says(t, name, err, "ctx is nil") })
	says(t, "Ping", l.Ping(none), "ctx is nil")
	says(t, "Shutdown", l.Shutdown(none), "ctx is nil")
	lock, err := l.Lock(t.Context(), harness.Key)
	if err != nil {
		t.Fatal(err)
	}
	says(t, "Downgrade", lock.Downgrade(none), "ctx is nil")
}

// TestErrorsOfASemaphoreNameIt has each error of a semaphore name its key, and not that of a slot.
func TestErrorsOfASemaphoreNameIt(t *testing.T) {
	p := harness.Drivers[0].Open(t, pgtest.URL(t))
	l, closed := p.Locker(t), p.Locker(t)
	closed.Close()
	ended, end := context.WithCancel(t.Context())
	end()
	var none context.Context
	check := func(name string, err error) {
		if strings.HasPrefix(name, "Semaphore.") {
			says(t, name, err, "4820")
			if !errors.Is(err, advisory.ErrNotAcquired) {
				says(t, name, err, "acquire a slot of semaphore 4820")
			}
		}
	}
	everyCallWith(none, t, l, harness.Key, nil, check)
	everyCallWith(ended, t, l, harness.Key, nil, check)
	everyCall(t, closed, harness.Key, nil, check)
	everyCall(t, l, harness.Key, []advisory.LockerOption{nil}, check)
}

// TestSemaphoreThatIsFull has its refusals tell of the semaphore, and name the holder of a slot.
func TestSemaphoreThatIsFull(t *testing.T) {
	p := harness.Drivers[0].Open(t, pgtest.URL(t))
	taken, err := p.Locker(t).Semaphore(harness.Key, 1).Acquire(t.Context(), advisory.Label("the holder"))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Unlock()
	sem := p.Locker(t).Semaphore(harness.Key, 1)
	var holders []advisory.Holder
	lock, ok, err := sem.TryAcquire(t.Context(), advisory.HoldersTo(&holders))
	if ok || err != nil || len(holders) != 1 || lock.Key() != harness.Key {
		t.Errorf("a try: %v, %v, key %s, held by %v", ok, err, lock.Key(), holders)
	}
	events, err := harness.UntilWaiting(t.Context(), func(ctx context.Context, opts ...advisory.Option) error {
		_, err := sem.Acquire(ctx, harness.OptionsAs[advisory.SemaphoreOption](opts)...)
		return err
	})
	busy, is := errors.AsType[*advisory.NotAcquiredError](err)
	if !is || busy.Key != harness.Key || len(busy.Holders) != 1 {
		t.Errorf("a wait: %v", err)
	}
	for _, e := range events {
		if e.Key != harness.Key {
			t.Errorf("%v of key %s", e.Kind, e.Key)
		}
		if e.Kind == advisory.Waiting && len(e.Holders) != 1 {
			t.Errorf("it waits for %v", e.Holders)
		}
	}
}

func TestLockerWithOptionsThatMakeNoSense(t *testing.T) {
	var nilObserver *harness.Recorder
	var nilOption *nothingOption
	for _, v := range []struct {
		says string
		opts []locker.Option
	}{
		{"WithHeartbeat(0s)", []locker.Option{locker.WithHeartbeat(0)}},
		{"WithHeartbeat(-1s)", []locker.Option{locker.WithHeartbeat(-time.Second)}},
		{"WithHeartbeat(1s)", []locker.Option{locker.WithHeartbeat(time.Second)}},
		{"WithHeartbeat(2562047h47m16.854775807s)", []locker.Option{locker.WithHeartbeat(math.MaxInt64)}},
		{"WithFailover(0s)", []locker.Option{locker.WithFailover(0)}},
		{"WithFailover(-1m0s)", []locker.Option{locker.WithFailover(-time.Minute)}},
		{"WithFailover(3.999s)", []locker.Option{locker.WithFailover(3999 * time.Millisecond)}},
		{"WithFailover(-2562047h47m16.854775808s)", []locker.Option{locker.WithFailover(math.MinInt64)}},
		{"WithFailover(2562047h47m16.854775807s)", []locker.Option{locker.WithFailover(math.MaxInt64)}},
		{"WithFailover(9h0m1s)", []locker.Option{locker.WithFailover(9*time.Hour + time.Second)}},
		{"WithFailover(4s) is too short for WithHeartbeat(900ms)", []locker.Option{locker.WithFailover(4 * time.Second), locker.WithHeartbeat(900 * time.Millisecond)}},
		{"WithMaxConns(1)", []locker.Option{locker.WithMaxConns(1)}},
		{"WithMaxConns(0)", []locker.Option{locker.WithMaxConns(0)}},
		{"WithMaxConns(-1)", []locker.Option{locker.WithMaxConns(-1)}},
		{"option 2 of 2 is nil", []locker.Option{locker.WithFencing(), nil}},
		{"option 1 of 1 is nil", []locker.Option{nilOption}},
		{"WithObserver was given a nil *harness.Recorder", []locker.Option{advisory.WithObserver(nilObserver)}},
	} {
		t.Run(v.says, func(t *testing.T) {
			p := harness.Drivers[0].Open(t, "postgres://nobody.invalid/")
			l := p.Locker(t, v.opts...)
			everyCall(t, l, harness.Key, nil, func(name string, err error) { says(t, name, err, v.says) })
			says(t, "Ping", l.Ping(t.Context()), v.says)
			if n := p.Stats().OpenConnections; n != 0 {
				t.Errorf("%d connections are open", n)
			}
		})
	}
}

// nothingOption is an option of a user's own.
type nothingOption struct{}

func (*nothingOption) ApplyNew(*option.Locker) {}

func TestLockerWithoutAPool(t *testing.T) {
	l := locker.New(nil)
	everyCall(t, l, harness.Key, nil, func(name string, err error) { says(t, name, err, "nil *sql.DB") })
	says(t, "Ping", l.Ping(t.Context()), "nil *sql.DB")
	if l.Holds(harness.Key) {
		t.Error("it holds a key")
	}
	if err := l.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestLockerWithBoundsThatMakeSense(t *testing.T) {
	p := harness.Drivers[0].Open(t, pgtest.URL(t))
	for _, opts := range [][]locker.Option{
		{locker.WithFailover(4 * time.Second)},
		{locker.WithFailover(4 * time.Second), locker.WithHeartbeat(500 * time.Millisecond)},
		{locker.WithFailover(9 * time.Hour), locker.WithHeartbeat(999 * time.Millisecond)},
		{locker.WithHeartbeat(time.Millisecond)},
		{locker.WithMaxConns(2), advisory.WithObserver(nil)},
		{locker.WithMaxConns(math.MaxInt), locker.WithApplicationName("it's\n" + strings.Repeat("long ", 20))},
	} {
		l := p.Locker(t, opts...)
		if err := l.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		harness.Release(t, harness.First(harness.LockerTry(t, l, harness.Key)))
	}
}

func TestLockerCallsWithArgumentsThatMakeNoSense(t *testing.T) {
	harness.EachDriverOfPools(t, func(t *testing.T, p *harness.Pool) {
		l := p.Locker(t)
		everyCall(t, l, advisory.Key{}, nil, func(name string, err error) {
			if !errors.Is(err, advisory.ErrInvalidKey) {
				t.Errorf("%s: %v", name, err)
			}
		})
		var nilObserver *harness.Recorder
		for words, opt := range map[string]advisory.LockerOption{
			"MaxWait(-1ns)":                          advisory.MaxWait(-1),
			"HoldAtLeast(-2562047h47m16.854775808s)": locker.HoldAtLeast(math.MinInt64),
			"Mode(2) is not a mode":                  advisory.Mode(2),
			"option 2 of 2 is nil":                   nil,
			"WithObserver was given a nil":           advisory.WithObserver(nilObserver),
		} {
			everyCall(t, l, harness.Key, []advisory.LockerOption{advisory.Label("account"), opt}, func(name string, err error) { says(t, name, err, words) })
		}
		for name, call := range manyCalls {
			for _, none := range [][]advisory.Key{nil, {}} {
				says(t, name, call(t.Context(), l, none), "no keys")
			}
		}
		for name, call := range workCalls {
			says(t, name, call(t.Context(), l, harness.Key, nil), "fn is nil")
		}
		for _, n := range []int{0, -1, math.MinInt} {
			sem := l.Semaphore(harness.Key, n)
			fn := func(context.Context) error { t.Error("fn runs"); return nil }
			lock, ok, err := sem.TryAcquire(t.Context())
			says(t, "TryAcquire", refused(ok || lock == nil, err), "n = ")
			lock, err = sem.Acquire(t.Context())
			says(t, "Acquire", refused(lock == nil, err), "n = ")
			ran, err := sem.TryDo(t.Context(), fn)
			says(t, "TryDo", refused(ran, err), "n = ")
			says(t, "Do", sem.Do(t.Context(), fn), "n = ")
		}
		if st := l.Stats(); st.Users != 0 || st.Waiting != 0 {
			t.Errorf("%+v", st)
		}
		p.NoLocks(t)
	})
}

func TestKeyGivenTwiceIsTakenOnce(t *testing.T) {
	harness.EachDriverOfPools(t, func(t *testing.T, p *harness.Pool) {
		a, b := p.Locker(t), p.Locker(t)
		twice := []advisory.Key{harness.Key, advisory.Pair(0, 4820), harness.Key, advisory.Int64(-1), advisory.Pair(0, 4820)}
		once := func(locks advisory.Locks, err error) {
			t.Helper()
			if len(locks) != 3 || err != nil {
				t.Fatalf("%d locks, %v", len(locks), err)
			}
			if held, _ := p.Locks(t); held != 3 {
				t.Errorf("%d are held", held)
			}
			for _, lock := range locks {
				if _, ok := harness.LockerTry(t, b, lock.Key()); ok {
					t.Errorf("%v is free", lock.Key())
				}
			}
			if err := locks.Unlock(); err != nil {
				t.Error(err)
			}
			p.NoLocks(t)
		}
		locks, _, err := a.TryLockAll(t.Context(), twice)
		once(locks, err)
		once(a.LockAll(t.Context(), twice))
		lock, err := a.LockAny(t.Context(), twice)
		if err != nil {
			t.Fatal(err)
		}
		harness.Release(t, lock)
		p.NoLocks(t)
	})
}

func TestLockerCallsAfterClose(t *testing.T) {
	harness.EachDriverOfPools(t, func(t *testing.T, p *harness.Pool) {
		for _, used := range []bool{false, true} {
			l := locker.New(p.DB)
			if used {
				harness.Release(t, harness.First(harness.LockerTry(t, l, harness.Key)))
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			isClosed := func(name string, err error) {
				if !errors.Is(err, advisory.ErrClosed) {
					t.Errorf("%s: %v", name, err)
				}
			}
			everyCall(t, l, harness.Key, nil, isClosed)
			isClosed("Ping", l.Ping(t.Context()))
			if err := l.Close(); err != nil {
				t.Errorf("a second Close: %v", err)
			}
			if err := l.Shutdown(t.Context()); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			if l.Holds(harness.Key) || l.Stats() != (locker.Stats{}) {
				t.Errorf("%v %+v", l.Holds(harness.Key), l.Stats())
			}
			if !locksNowhere(p) {
				t.Errorf("%+v are open", p.Stats())
			}
		}
	})
}

func TestLockerCallsAfterThePoolIsClosed(t *testing.T) {
	harness.EachDriverOfPools(t, func(t *testing.T, p *harness.Pool) {
		l := p.Locker(t)
		p.DB.Close()
		for name, call := range plainCalls {
			says(t, name, call(t.Context(), l, harness.Key, nil), "closed")
		}
		says(t, "Ping", l.Ping(t.Context()), "closed")
	})
}

// A pool of one connection has none left for the work once the Locker has taken it: that
// would hang, without a word.
func TestPoolOfOneConnectionIsToldNotToWork(t *testing.T) {
	pgtest.Slow(t)
	harness.EachDriverOfPools(t, func(t *testing.T, p *harness.Pool) {
		p.SetMaxOpenConns(1)
		l := p.Locker(t)
		everyCall(t, l, harness.Key, nil, func(name string, err error) { says(t, name, err, "MaxOpenConns 1") })
		says(t, "Ping", l.Ping(t.Context()), "MaxOpenConns 1")
		if n := p.Stats().OpenConnections; n != 0 {
			t.Errorf("%d connections are open", n)
		}
		// It is no more than that that is wrong.
		p.SetMaxOpenConns(2)
		err := l.Do(t.Context(), harness.Key, func(ctx context.Context) error { return p.PingContext(ctx) })
		if err != nil {
			t.Error(err)
		}
	})
}

func TestSessionLockerWithArgumentsThatMakeNoSense(t *testing.T) {
	harness.EachDriverOfPools(t, func(t *testing.T, p *harness.Pool) {
		conn, err := p.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for words, s := range map[string]*adapt.GooseLocker{
			"invalid key":    adapt.Goose(advisory.Key{}),
			"option 1 of 1":  adapt.Goose(harness.Key, nil),
			"MaxWait(-1ns)":  adapt.Goose(harness.Key, advisory.MaxWait(-1)),
			"Mode(2) is not": adapt.Goose(harness.Key, advisory.Mode(2)),
		} {
			says(t, "SessionLock", s.SessionLock(t.Context(), conn), words)
			says(t, "SessionUnlock", s.SessionUnlock(t.Context(), conn), words)
			says(t, "Lock", s.Lock(t.Context(), p.DB), words)
			if err := s.Unlock(t.Context(), p.DB); !errors.Is(err, advisory.ErrNotHeld) {
				t.Errorf("Unlock: %v", err)
			}
		}
		s := adapt.Goose(harness.Key)
		says(t, "SessionLock", s.SessionLock(t.Context(), nil), "conn is nil")
		says(t, "SessionUnlock", s.SessionUnlock(t.Context(), nil), "conn is nil")
		says(t, "Lock", s.Lock(t.Context(), nil), "nil *sql.DB")
		if err := s.SessionUnlock(t.Context(), conn); !errors.Is(err, advisory.ErrNotHeld) {
			t.Errorf("SessionUnlock: %v", err)
		}
		p.NoLocks(t)
	})
}
