package advisory_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/under"
)

// A fakeLock does what Lock's comments say, without a server.
type fakeLock struct {
	key       advisory.Key
	ctx       context.Context
	end       context.CancelCauseFunc
	unlockErr error
	takes     time.Duration
}

func newFakeLock(ctx context.Context, n int64) *fakeLock {
	l := &fakeLock{key: advisory.Int64(n)}
	l.ctx, l.end = context.WithCancelCause(context.WithoutCancel(ctx))
	return l
}

func (l *fakeLock) Key() advisory.Key               { return l.key }
func (l *fakeLock) Mode() advisory.Mode             { return advisory.Exclusive }
func (l *fakeLock) Token() uint64                   { return 0 }
func (l *fakeLock) Context() context.Context        { return l.ctx }
func (l *fakeLock) Downgrade(context.Context) error { return nil }

func (l *fakeLock) Unlock() error {
	time.Sleep(l.takes)
	l.end(nil)
	return l.unlockErr
}

func TestContextOfLocksEndsWithTheFirstThatEnds(t *testing.T) {
	for lost := range 3 {
		var locks advisory.Locks
		for n := range 3 {
			locks = append(locks, newFakeLock(t.Context(), int64(n)))
		}
		ctx := locks.Context()
		if ctx.Err() != nil {
			t.Fatal("it ended before any lock did")
		}
		locks[lost].(*fakeLock).end(advisory.ErrLost)
		<-ctx.Done()
		if cause := context.Cause(ctx); cause != advisory.ErrLost {
			t.Errorf("cause %v, want ErrLost", cause)
		}
	}
}

func TestContextOfLocksHasEndedIfOneHas(t *testing.T) {
	first, second := newFakeLock(t.Context(), 1), newFakeLock(t.Context(), 2)
	second.end(advisory.ErrClosed)
	ctx := advisory.Locks{first, second}.Context()
	if ctx.Err() == nil || context.Cause(ctx) != advisory.ErrClosed {
		t.Errorf("Err() = %v, cause %v; want an end with ErrClosed", ctx.Err(), context.Cause(ctx))
	}
}

func TestContextOfLocksKeepsTheValuesOfTheFirst(t *testing.T) {
	type word struct{}
	first := newFakeLock(context.WithValue(t.Context(), word{}, "first"), 1)
	second := newFakeLock(context.WithValue(t.Context(), word{}, "second"), 2)
	if v := (advisory.Locks{first, second}).Context().Value(word{}); v != "first" {
		t.Errorf("value %v", v)
	}
}

func TestContextOfLocksLetsGoOfTheOthers(t *testing.T) {
	long := newFakeLock(t.Context(), 1)
	counted := &countingContext{Context: long.ctx}
	long.ctx = counted
	for range 10 {
		short := newFakeLock(t.Context(), 2)
		ctx := advisory.Locks{long, short}.Context()
		short.end(advisory.ErrLost)
		<-ctx.Done()
	}
	if counted.added != 10 {
		t.Errorf("%d functions waited for its end, want 10", counted.added)
	}
	done := make(chan struct{})
	go func() { counted.settled.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("functions still wait for a lock for whose end nobody waits any more")
	}
}

// A countingContext counts the functions that wait for its end.
type countingContext struct {
	context.Context
	added   int
	settled sync.WaitGroup
}

// Value hides the context inside, which AfterFunc would find past this one.
func (c *countingContext) Value(any) any { return nil }

func (c *countingContext) AfterFunc(f func()) func() bool {
	stop := context.AfterFunc(c.Context, f)
	c.added++
	c.settled.Add(1)
	return sync.OnceValue(func() bool {
		defer c.settled.Done()
		return stop()
	})
}

func TestNoLocks(t *testing.T) {
	var none advisory.Locks
	if err := none.Context().Err(); err != nil {
		t.Error(err)
	}
	if err := none.Unlock(); err != nil {
		t.Error(err)
	}
}

func TestUnlockOfLocksJoinsTheErrors(t *testing.T) {
	held, lost, released := newFakeLock(t.Context(), 1), newFakeLock(t.Context(), 2), newFakeLock(t.Context(), 3)
	lost.unlockErr, released.unlockErr = advisory.ErrLost, advisory.ErrNotHeld
	err := advisory.Locks{lost, held, released}.Unlock()
	if !errors.Is(err, advisory.ErrLost) || !errors.Is(err, advisory.ErrNotHeld) {
		t.Errorf("%v, want ErrLost and ErrNotHeld", err)
	}
	if held.ctx.Err() == nil {
		t.Error("the lock between the two was not unlocked")
	}
	if err := (advisory.Locks{held}).Unlock(); err != nil {
		t.Error(err)
	}
}

func TestUnlockOfLocksTakesAsLongAsTheSlowest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var locks advisory.Locks
		for n := range 100 {
			l := newFakeLock(t.Context(), int64(n))
			l.takes = 5 * time.Second
			locks = append(locks, l)
		}
		start := time.Now()
		if err := locks.Unlock(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestFromContext(t *testing.T) {
	if l, ok := advisory.FromContext(t.Context()); l != nil || ok {
		t.Errorf("no lock: %v, %v", l, ok)
	}
	if l, ok := advisory.FromContext(under.NewContext(t.Context(), nil)); l != nil || ok {
		t.Errorf("a nil lock: %v, %v", l, ok)
	}
	outer, inner := newFakeLock(t.Context(), 1), newFakeLock(t.Context(), 2)
	ctx := under.NewContext(t.Context(), outer)
	if l, ok := advisory.FromContext(ctx); l != advisory.Lock(outer) || !ok {
		t.Errorf("%v, %v; want the lock", l, ok)
	}
	if l, ok := advisory.FromContext(under.NewContext(ctx, inner)); l != advisory.Lock(inner) || !ok {
		t.Errorf("%v, %v; want the innermost lock", l, ok)
	}
}
