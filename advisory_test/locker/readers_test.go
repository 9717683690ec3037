package locker_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory/locktest"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/locker"
)

// readersAtOnce has n goroutines try at the same moment, and returns how many were refused.
func readersAtOnce(t *testing.T, n int, try func() (bool, error)) int64 {
	t.Helper()
	var refused atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range n {
		wg.Go(func() {
			<-start
			ok, err := try()
			if err != nil {
				t.Error(err)
			}
			if !ok {
				refused.Add(1)
			}
		})
	}
	close(start)
	wg.Wait()
	return refused.Load()
}

// Shared tries of one process at the same moment, on keys that nobody has or that a reader has,
// all succeed. Each reader gives its lock back at once, so that tries meet releases, too.
func TestReadersDoNotRefuseEachOther(t *testing.T) {
	ways := map[string]func(l *locker.Locker) (bool, error){
		"TryLock": func(l *locker.Locker) (bool, error) {
			lock, ok, err := l.TryLock(context.Background(), harness.Key, advisory.Shared)
			if ok {
				err = lock.Unlock()
			}
			return ok, err
		},
		"TryDo": func(l *locker.Locker) (bool, error) {
			return l.TryDo(context.Background(), harness.Key, func(context.Context) error { return nil }, advisory.Shared)
		},
		"TryLockAll": func(l *locker.Locker) (bool, error) {
			locks, ok, err := l.TryLockAll(context.Background(), []advisory.Key{harness.Key, advisory.Int64(1)}, advisory.Shared)
			if ok {
				err = locks.Unlock()
			}
			return ok, err
		},
		"TryLockAny": func(l *locker.Locker) (bool, error) {
			lock, ok, err := l.TryLockAny(context.Background(), []advisory.Key{harness.Key, advisory.Int64(1)}, advisory.Shared)
			if ok {
				err = lock.Unlock()
			}
			return ok, err
		},
	}
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		for _, opts := range [][]locker.Option{nil, {locker.WithFencing()}} {
			for name, try := range ways {
				l := p.Locker(t, opts...)
				if n := readersAtOnce(t, 400, func() (bool, error) { return try(l) }); n > 0 {
					t.Errorf("%s (fencing: %v): %d of 400 readers were refused, and nobody had the key", name, opts != nil, n)
				}
				held, ok, err := l.TryLock(t.Context(), harness.Key, advisory.Shared)
				if !ok || err != nil {
					t.Fatal(ok, err)
				}
				if n := readersAtOnce(t, 200, func() (bool, error) { return try(l) }); n > 0 {
					t.Errorf("%s (fencing: %v): %d of 200 readers were refused beside a reader", name, opts != nil, n)
				}
				held.Unlock()
				p.NoLocks(t)
			}
		}
	})
}

// Where another process writes, all readers are refused, whether they wait or try.
func TestReadersAreRefusedBesideAWriter(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		a, b := p.Locker(t), p.Locker(t)
		writer, ok, err := b.TryLock(t.Context(), harness.Key)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		got := make(chan error)
		go func() {
			lock, err := a.Lock(context.Background(), harness.Key, advisory.Shared)
			if err == nil {
				err = lock.Unlock()
			}
			got <- err
		}()
		harness.Eventually(t, "a reader waits", func() bool { _, waiting := p.Locks(t); return waiting == 1 })
		for name, try := range map[string]func() (bool, error){
			"TryLock": func() (bool, error) {
				_, ok, err := a.TryLock(context.Background(), harness.Key, advisory.Shared)
				return ok, err
			},
			"TryLockAny": func() (bool, error) {
				_, ok, err := a.TryLockAny(context.Background(), []advisory.Key{harness.Key}, advisory.Shared)
				return ok, err
			},
		} {
			if n := readersAtOnce(t, 100, try); n != 100 {
				t.Errorf("%s: %d of 100 were refused", name, n)
			}
		}
		writer.Unlock()
		if err := <-got; err != nil {
			t.Error(err)
		}
		p.NoLocks(t)
	})
}

func TestReadersOfTheLockerInMemoryDoNotRefuseEachOther(t *testing.T) {
	l := locktest.New()
	if n := readersAtOnce(t, 400, func() (bool, error) {
		lock, ok, err := l.TryLock(context.Background(), harness.Key, advisory.Shared)
		if ok {
			err = lock.Unlock()
		}
		return ok, err
	}); n > 0 {
		t.Errorf("%d of 400 were refused", n)
	}
}
