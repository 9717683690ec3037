//go:build unix

package failover_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// tokenKeys is how many keys the load of a promotion takes, each by a goroutine of its own.
const tokenKeys = 8

// A tokenLoad takes locks with tokens, as quickly as it can.
type tokenLoad struct {
	given           atomic.Int64
	smallest, great atomic.Uint64
	dead            atomic.Bool // errors are the server's end
	stop            context.CancelFunc
	done            sync.WaitGroup
}

func startTokenLoad(t *testing.T, d harness.Driver, url string) *tokenLoad {
	ctx, cancel := context.WithCancel(context.Background())
	load := &tokenLoad{stop: cancel}
	load.smallest.Store(math.MaxUint64)
	l := locker.New(d.Open(t, url).DB, locker.WithFencing())
	t.Cleanup(func() { load.end(); l.Close() })
	for k := range tokenKeys {
		load.done.Go(func() {
			for last := uint64(0); ctx.Err() == nil; {
				lock, err := l.Lock(ctx, advisory.Int64(int64(k)))
				if err != nil {
					if ctx.Err() == nil && !load.dead.Load() {
						t.Error(err)
					}
					return
				}
				token := lock.Token()
				if token <= last {
					t.Errorf("key %d: token %d after %d", k, token, last)
				}
				last = token
				load.note(token)
				if err := lock.Unlock(); err != nil && !load.dead.Load() && !errors.Is(err, advisory.ErrLost) {
					t.Error(err)
				}
			}
		})
	}
	return load
}

func (l *tokenLoad) note(token uint64) {
	for s := l.smallest.Load(); token < s && !l.smallest.CompareAndSwap(s, token); s = l.smallest.Load() {
	}
	for g := l.great.Load(); token > g && !l.great.CompareAndSwap(g, token); g = l.great.Load() {
	}
	l.given.Add(1)
}

// more waits until n more tokens have been given.
func (l *tokenLoad) more(t *testing.T, n int64) {
	t.Helper()
	end := l.given.Load() + n
	harness.Eventually(t, "tokens are given", func() bool { return l.given.Load() >= end })
}

func (l *tokenLoad) end() {
	l.stop()
	l.done.Wait()
}

// A loadPromotion is how the primary of a load is replaced.
type loadPromotion struct {
	name        string
	synchronous bool // the standby
	lags        bool // the standby: it does not get what is written just before
	isolated    bool // the old primary goes on, instead of a crash
}

var promotions = []loadPromotion{
	{"isolated, synchronous", true, true, true},
	{"crashed, lagging", false, true, false},
	{"crashed, synchronous", true, false, false},
	{"isolated", false, true, true},
	{"crashed, lagging, synchronous", true, true, false},
	{"crashed", false, false, false},
}

// Tokens grow over the promotion of a standby, under load, also of one that lags. All tokens of an
// old primary that goes on are smaller than those of the new one. PGADVISORY_PROMOTIONS says how many
// promotions.
func TestTokensGrowOverPromotions(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	r := harness.NewReplication(t, 1)
	primary, standby := r.Primary, r.Standbys[0]
	for i := range harness.Number(t, "PGADVISORY_PROMOTIONS", 2) {
		promote(t, primary, standby, promotions[i%len(promotions)], harness.Drivers[i%2], harness.Drivers[(i+1)%2])
		if t.Failed() {
			return
		}
		primary, standby = standby, primary
	}
}

func promote(t *testing.T, primary, standby *harness.Node, how loadPromotion, before, after harness.Driver) {
	t.Helper()
	if how.synchronous {
		primary.Synchronous(standby.Name)
	}
	old := startTokenLoad(t, before, primary.URL())
	old.more(t, 200)
	if how.lags {
		standby.Cut()
		old.more(t, 500)
	}
	if !how.isolated {
		old.dead.Store(true)
		if err := primary.Crash(); err != nil {
			t.Fatal(err)
		}
		old.end()
	}
	standby.Promote()
	next := startTokenLoad(t, after, standby.URL())
	next.more(t, 200)
	if how.isolated {
		old.more(t, 500)
		old.end()
		if err := primary.Stop("immediate"); err != nil {
			t.Fatal(err)
		}
	}
	next.end()
	greatest, smallest := old.great.Load(), next.smallest.Load()
	t.Logf("%s: the old primary's tokens go up to %#x, the new one's begin at %#x", how.name, greatest, smallest)
	if smallest <= greatest {
		t.Errorf("%s: the new primary's tokens begin at %d, which is no more than %d of the old one's", how.name, smallest, greatest)
	}
	primary.Rebuild(standby)
}

// The limit that the documentation names: two standbys of one primary that are both promoted begin
// the same timeline, also one after the other if the second never saw the first.
func TestTwoPromotedStandbysOfOnePrimaryShareATimeline(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	r := harness.NewReplication(t, 2)
	for _, n := range r.Standbys {
		n.Promote()
		lock, err := locker.New(harness.Drivers[0].Open(t, n.URL()).DB, locker.WithFencing()).Lock(t.Context(), harness.Key)
		if err != nil {
			t.Fatal(err)
		}
		if n.Timeline() != 2 || lock.Token()>>48 != 2 {
			t.Errorf("%s is on timeline %d, with token %#x", n.Name, n.Timeline(), lock.Token())
		}
		if err := n.Stop("immediate"); err != nil {
			t.Fatal(err)
		}
	}
}
