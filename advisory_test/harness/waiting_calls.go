package harness

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/locker"
)

// WaitingCalls are the calls of a Locker that wait. Each returns when it has had its lock.
var WaitingCalls = map[string]func(ctx context.Context, l *locker.Locker, k advisory.Key) error{
	"Lock": func(ctx context.Context, l *locker.Locker, k advisory.Key) error {
		lock, err := l.Lock(ctx, k)
		if err == nil {
			err = lock.Unlock()
		}
		return err
	},
	"Lock, shared": func(ctx context.Context, l *locker.Locker, k advisory.Key) error {
		lock, err := l.Lock(ctx, k, advisory.Shared)
		if err == nil {
			err = lock.Unlock()
		}
		return err
	},
	"Do": func(ctx context.Context, l *locker.Locker, k advisory.Key) error {
		return l.Do(ctx, k, func(context.Context) error { return nil })
	},
	"LockAll": func(ctx context.Context, l *locker.Locker, k advisory.Key) error {
		locks, err := l.LockAll(ctx, []advisory.Key{k, advisory.Name(k.String(), "free")})
		if err == nil {
			err = locks.Unlock()
		}
		return err
	},
	"LockAny": func(ctx context.Context, l *locker.Locker, k advisory.Key) error {
		lock, err := l.LockAny(ctx, []advisory.Key{k})
		if err == nil {
			err = lock.Unlock()
		}
		return err
	},
	"Lead": func(ctx context.Context, l *locker.Locker, k advisory.Key) error {
		return l.Lead(ctx, k, func(context.Context) error { return nil })
	},
	"Semaphore.Acquire": func(ctx context.Context, l *locker.Locker, k advisory.Key) error {
		lock, err := l.Semaphore(k, 1).Acquire(ctx)
		if err == nil {
			err = lock.Unlock()
		}
		return err
	},
	"Semaphore.Do": func(ctx context.Context, l *locker.Locker, k advisory.Key) error {
		return l.Semaphore(k, 1).Do(ctx, func(context.Context) error { return nil })
	},
}

// KeyOfCall returns the key for which one of WaitingCalls waits in a test.
func KeyOfCall(name string) advisory.Key { return advisory.Name("waits", name) }

// Occupy takes, by a Locker of its own, the keys for which WaitingCalls wait. The end of the server frees them.
func Occupy(t *testing.T, url string) {
	t.Helper()
	l := locker.New(Drivers[0].Open(t, url).DB)
	t.Cleanup(func() { l.Close() })
	for name := range WaitingCalls {
		var ok bool
		var err error
		if strings.HasPrefix(name, "Semaphore") {
			_, ok, err = l.Semaphore(KeyOfCall(name), 1).TryAcquire(t.Context())
		} else {
			_, ok, err = l.TryLock(t.Context(), KeyOfCall(name))
		}
		if !ok || err != nil {
			t.Fatalf("%s: %v, %v", name, ok, err)
		}
	}
}

// Waits are calls that wait, all under way.
type Waits struct {
	ended chan string
	n     int
}

// Begin begins each of WaitingCalls on l.
func (w *Waits) Begin(ctx context.Context, who string, l *locker.Locker) {
	if w.ended == nil {
		w.ended = make(chan string)
	}
	for name, call := range WaitingCalls {
		w.n++
		go func() {
			text := ""
			if err := call(ctx, l, KeyOfCall(name)); err != nil {
				text = fmt.Sprintf("%s, %s: %v", who, name, err)
			}
			w.ended <- text
		}()
	}
}

// End waits until all have had their locks, and returns how many there were. It fails the test for
// each that has an error.
func (w *Waits) End(t *testing.T) int {
	t.Helper()
	for range w.n {
		if text := <-w.ended; text != "" {
			t.Error(text)
		}
	}
	return w.n
}
