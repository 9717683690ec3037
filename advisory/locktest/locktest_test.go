package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory/locktest"
)

// What it has in common with *locker.Locker is tested in advisory_test, by one suite for
// both. Here is what only it can do, and how it goes in a bubble.

var key = advisory.Int64(4820)

func TestWaitTakesNoTimeInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New()
		release := l.Occupy(key)
		time.AfterFunc(time.Hour, release)
		start := time.Now()
		lock, err := l.Lock(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited != time.Hour {
			t.Errorf("waited %v", waited)
		}
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}

		release = l.Occupy(key)
		defer release()
		start = time.Now()
		_, err = l.Lock(t.Context(), key, advisory.MaxWait(time.Minute))
		var na *advisory.NotAcquiredError
		if !errors.As(err, &na) || na.Waited != time.Minute || time.Since(start) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// A goroutine that was left behind would keep the bubble from ending.
func TestNothingIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New()
		lost, _, _ := l.TryLock(t.Context(), key)
		l.TryLock(t.Context(), advisory.Int64(1)) // never released
		waiting, stop := context.WithCancel(t.Context())
		for range 10 {
			go l.Lock(waiting, key)
		}
		synctest.Wait()
		stop()
		synctest.Wait()
		l.Lose(key)
		lost.Unlock()
		l.Occupy(key) // never released
	})
}

func TestOccupyIsAnotherNode(t *testing.T) {
	l := locktest.New()
	shared := l.Occupy(key, advisory.Shared, advisory.Label("worker-7"))
	reader, ok, err := l.TryLock(t.Context(), key, advisory.Shared)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	second := l.Occupy(key, advisory.Shared)
	_, err = l.Lock(t.Context(), key, advisory.MaxWait(0))
	var na *advisory.NotAcquiredError
	if !errors.As(err, &na) || len(na.Holders) != 3 {
		t.Fatalf("%v", err)
	}
	pids := map[int]bool{}
	for i, h := range na.Holders {
		pids[h.PID] = true
		if h.Local != (i == 1) || h.Mode != advisory.Shared {
			t.Errorf("%+v", h)
		}
	}
	if len(pids) != 3 || pids[0] || na.Holders[0].Application != "worker-7" {
		t.Errorf("%+v", na.Holders)
	}
	if !strings.Contains(err.Error(), "application worker-7") {
		t.Errorf("%v", err)
	}
	shared()
	shared() // once is enough
	l.Lose(key)
	if err := reader.Unlock(); !errors.Is(err, advisory.ErrLost) {
		t.Error(err)
	}
	if _, ok, _ := l.TryLock(t.Context(), key); ok {
		t.Error("Lose has taken the key from another node")
	}
	second()
	if _, ok, _ := l.TryLock(t.Context(), key); !ok {
		t.Error("not free")
	}
}

func TestOccupyOfWhatCannotBeOccupied(t *testing.T) {
	l := locktest.New()
	panics := func(want string, k advisory.Key, opts ...advisory.Option) {
		t.Helper()
		defer func() {
			if v := fmt.Sprint(recover()); !strings.Contains(v, want) {
				t.Errorf("%s; want %q", v, want)
			}
		}()
		l.Occupy(k, opts...)
	}
	panics("invalid key", advisory.Key{})
	panics("Mode(9)", key, advisory.Mode(9))
	panics("option 1 of 1 is nil", key, nil)
	lock, _, _ := l.TryLock(t.Context(), key, advisory.Shared)
	panics("the Locker under test holds it (shared)", key)
	lock.Unlock()
	l.Occupy(key)
	panics("another node holds it (exclusive)", key, advisory.Shared)
	if l.Holds(key) {
		t.Error("another node's counts as ours")
	}
}

func TestLoseOfWhatNobodyHolds(t *testing.T) {
	l := locktest.New()
	l.Lose(key)
	l.Lose(advisory.Key{})
	if l.Holds(key) {
		t.Error("it holds it")
	}
}

func TestLoseHandsOnToWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New()
		lost, _, _ := l.TryLock(t.Context(), key)
		var next advisory.Lock
		go func() { next, _ = l.Lock(t.Context(), key) }()
		synctest.Wait()
		l.Lose(key)
		synctest.Wait()
		if lost.Context().Err() == nil || next == nil || next.Context().Err() != nil || next.Token() <= lost.Token() {
			t.Errorf("%v, %v", lost, next)
		}
		lost.Unlock()
		if !l.Holds(key) {
			t.Error("the next one does not hold it")
		}
	})
}

func TestLongWaitIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New()
		release := l.Occupy(key)
		time.AfterFunc(25*time.Second, release)
		var events []string
		lock, err := l.Lock(t.Context(), key, advisory.WithObserver(observer(func(e advisory.Event) {
			events = append(events, fmt.Sprint(e.Kind, " ", e.Waited))
		})))
		if err != nil {
			t.Fatal(err)
		}
		lock.Unlock()
		want := "[waiting 5s waiting 10s waiting 20s acquired 25s released 0s]"
		if got := fmt.Sprint(events); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

type observer func(advisory.Event)

func (f observer) Observe(_ context.Context, e advisory.Event) { f(e) }

// An Observer may use the Locker, for no mutex of it is held meanwhile.
func TestObserverMayCallTheLocker(t *testing.T) {
	l := locktest.New()
	other := advisory.Int64(1)
	var kinds []advisory.EventKind
	o := observer(func(e advisory.Event) {
		kinds = append(kinds, e.Kind)
		lock, ok, err := l.TryLock(context.Background(), other)
		if !ok || err != nil {
			t.Error(ok, err)
		}
		lock.Unlock()
		l.Holds(e.Key)
	})
	lock, _, _ := l.TryLock(t.Context(), key, advisory.WithObserver(o))
	l.TryLock(t.Context(), key, advisory.WithObserver(o))
	l.Lose(key)
	lock.Unlock()
	lock, _, _ = l.TryLock(t.Context(), key, advisory.WithObserver(o))
	lock.Unlock()
	if fmt.Sprint(kinds) != "[acquired not acquired lost acquired released]" {
		t.Errorf("%v", kinds)
	}
}
