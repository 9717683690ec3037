package locker_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/locker"
)

// Readers of two keys draw tokens all the time on one session: the keys take turns.
func TestReadersOfTwoKeysTakeTurns(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		keys := []advisory.Key{advisory.Int64(1), advisory.Int64(2)}
		locks, _, err := l.TryLockAll(context.Background(), keys, advisory.Shared)
		if err != nil {
			t.Fatal(err)
		}
		f.set(func() { f.delay = 30 * time.Millisecond })
		const readers = 50
		var all sync.WaitGroup
		var mu sync.Mutex
		got := make([]int, len(keys))
		for i, k := range keys {
			for range readers {
				all.Go(func() {
					lock := lock(t, l, k, advisory.Shared)
					mu.Lock()
					got[i]++
					if got[i] > got[1-i]+2 && got[1-i] < readers {
						t.Errorf("key %v has had %d tokens and the other %d", k, got[i], got[1-i])
					}
					mu.Unlock()
					lock.Unlock()
				})
			}
		}
		all.Wait()
		locks.Unlock()
		time.Sleep(time.Minute)
		released(t, f, l, keys...)
	}, locker.WithFencing())
}
