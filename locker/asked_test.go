package locker

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
)

// A teller answers who holds a key, after a while.
type teller struct {
	mu       sync.Mutex
	took     time.Duration
	asked    []advisory.Key
	underWay int
	most     int // at one time
}

func (a *teller) ask(ctx context.Context, key advisory.Key) []advisory.Holder {
	a.mu.Lock()
	a.asked = append(a.asked, key)
	a.underWay++
	a.most = max(a.most, a.underWay)
	a.mu.Unlock()
	defer func() { a.mu.Lock(); a.underWay--; a.mu.Unlock() }()
	select {
	case <-time.After(a.took):
		return []advisory.Holder{{Key: key}}
	case <-ctx.Done():
		return nil
	}
}

// A thousand waits that get long at once ask once, if they are for one key, and one after the other
// otherwise, each for a second at most.
func TestManyLongWaitsAskOneByOne(t *testing.T) {
	one, other := advisory.Int64(1), advisory.Int64(2)
	for name, c := range map[string]struct {
		took          time.Duration
		keys          []advisory.Key
		asked, told   int
		within, after time.Duration
	}{
		"one key":          {took: 5 * time.Millisecond, keys: slices.Repeat([]advisory.Key{one}, 1000), asked: 1, told: 1000, within: 5 * time.Millisecond},
		"two keys":         {took: 5 * time.Millisecond, keys: []advisory.Key{one, other}, asked: 2, told: 2, within: 10 * time.Millisecond},
		"no answer":        {took: time.Hour, keys: []advisory.Key{one, other}, asked: 1, told: 0, within: bound.Grace},
		"a later question": {took: 5 * time.Millisecond, keys: []advisory.Key{one}, after: askedFor, asked: 2, told: 2, within: askedFor + 10*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := asked{turn: make(chan struct{}, 1)}
				server := &teller{took: c.took}
				start := time.Now()
				var mu sync.Mutex
				told := 0
				ask := func(key advisory.Key) {
					hs := a.holders(t.Context(), key, server.ask)
					mu.Lock()
					defer mu.Unlock()
					if len(hs) == 1 && hs[0].Key == key {
						told++
					}
				}
				var all sync.WaitGroup
				for _, k := range c.keys {
					all.Go(func() { ask(k) })
				}
				all.Wait()
				if c.after != 0 {
					time.Sleep(c.after)
					ask(c.keys[0])
				}
				if n := len(server.asked); n < c.asked || n > c.asked && c.told > 0 || // both times end at once
					told != c.told || server.most != 1 || time.Since(start) > c.within {
					t.Errorf("asked %d times, %d at once, told %d within %v", len(server.asked), server.most, told, time.Since(start))
				}
			})
		})
	}
}

func TestWhoLeavesWaitsForNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := asked{turn: make(chan struct{}, 1)}
		server := &teller{took: time.Hour}
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if hs := a.holders(ctx, advisory.Int64(1), server.ask); hs != nil || time.Since(start) != time.Millisecond {
			t.Errorf("%v after %v", hs, time.Since(start))
		}
	})
}

// The answer to a wait that ended is none for the others.
func TestAnswerToAWaitThatEndedIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := asked{turn: make(chan struct{}, 1)}
		server := &teller{took: 20 * time.Millisecond}
		ends, stop := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer stop()
		a.holders(ends, advisory.Int64(1), server.ask)
		if hs := a.holders(t.Context(), advisory.Int64(1), server.ask); len(hs) != 1 {
			t.Errorf("%d holders, want 1", len(hs))
		}
	})
}
