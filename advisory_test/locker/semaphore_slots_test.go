package locker_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// The keys of the first five slots of semaphores, made by another program. They never
// change: old and new versions of this library run side by side.
var semaphoreSlots = map[advisory.Key][]int64{
	advisory.Int64(4820):      {4098335558661730031, -5204250864441949795, -7625480850968552174, -624036484467666488, 6476151075486372077},
	advisory.Int64(0):         {3040474878757650435, 3712632042906477663, 939204861140778825, 607554120263799815, 2233365702202396324},
	advisory.Int64(-7):        {5324656857573929983, -4257900099075608979, -8150010232678952833, 5509427231118887543, -7038886833478563418},
	advisory.Int64(-1 << 63):  {-7161583527930325278, 1772285110325320006, -7383679501044565253, -6405109850216704555, -9033986046989811027},
	advisory.Int64(1<<63 - 1): {-377487646467171697, 8156551115185077615, -747705893613099695, -3551407433767413323, -4632316719312152042},
	advisory.Pair(12, 34):     {1411175139125177588, -5902128765679716405, -3137977947173192790, -696380068219789212, -7144246851788093314},
	advisory.Pair(0, 0):       {4011740311565276174, -2031201235163494288, -3609634542334169546, 7330641902863749059, -1564477108418715151},
	advisory.Pair(-1, -2):     {-6140923188281018663, -8499268857669274338, 3250259077211948861, 6966610010751039947, 5300414371569070573},
	advisory.Pair(-1<<31, 1<<31-1): {
		-1763298688203932267, -9005806926547444802, 1917444865003377627, 4134930065543478594, -7049210720010288256,
	},
}

// slotsOf takes all slots of a semaphore, and returns their keys, sorted.
func slotsOf(t *testing.T, l *locker.Locker, k advisory.Key, n int) (slots []int64) {
	t.Helper()
	sem := l.Semaphore(k, n)
	var locks advisory.Locks
	for range n {
		lock, ok, err := sem.TryAcquire(t.Context())
		if !ok || err != nil {
			t.Fatalf("%v: %d of %d slots: %v", k, len(locks), n, err)
		}
		slot, ok := lock.Key().Int64()
		if !ok {
			t.Errorf("%v: slot %v", k, lock.Key())
		}
		locks, slots = append(locks, lock), append(slots, slot)
	}
	if _, ok, err := sem.TryAcquire(t.Context()); ok || err != nil {
		t.Errorf("%v: one slot more: %v, %v", k, ok, err)
	}
	if err := locks.Unlock(); err != nil {
		t.Error(err)
	}
	slices.Sort(slots)
	return slots
}

func TestSemaphoreSlotsNeverChange(t *testing.T) {
	l := harness.Drivers[0].Open(t, pgtest.URL(t)).Locker(t)
	for k, want := range semaphoreSlots {
		for n := 1; n <= 5; n++ {
			if got := slotsOf(t, l, k, n); !slices.Equal(got, slices.Sorted(slices.Values(want[:n]))) {
				t.Errorf("%v with n = %d: %v, want %v", k, n, got, want[:n])
			}
		}
	}
	// The number of a slot is in decimal.
	if !slices.Contains(slotsOf(t, l, harness.Key, 12), 2994627459100271053) {
		t.Error("slot 11 has another key")
	}
}

// A fleet goes from one n to another: whoever comes, no more than the larger are in.
func TestSemaphoresOfThreeAndFiveSideBySide(t *testing.T) {
	harness.EachDriverOfPools(t, func(t *testing.T, p *harness.Pool) {
		small, large := p.Locker(t).Semaphore(harness.Key, 3), p.Locker(t).Semaphore(harness.Key, 5)
		var bySmall, inAll, most, mostBySmall, done atomic.Int64
		raise := func(max *atomic.Int64, n int64) {
			for m := max.Load(); n > m && !max.CompareAndSwap(m, n); m = max.Load() {
			}
		}
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				sem := []*locker.Semaphore{small, large}[i%2]
				for range 5 {
					err := sem.Do(context.Background(), func(context.Context) error {
						raise(&most, inAll.Add(1))
						if sem == small {
							raise(&mostBySmall, bySmall.Add(1))
							defer bySmall.Add(-1)
						}
						time.Sleep(rand.N(4 * time.Millisecond))
						done.Add(1)
						inAll.Add(-1)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if most.Load() > 5 || mostBySmall.Load() > 3 || done.Load() != 80 {
			t.Errorf("at most %d in, %d of those by n = 3; %d in all", most.Load(), mostBySmall.Load(), done.Load())
		}
		p.NoLocks(t)
		// And no fewer: with all of the smaller one's slots taken the larger has two more.
		for range 3 {
			if _, ok, err := small.TryAcquire(t.Context()); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		for i := range 3 {
			if _, ok, err := large.TryAcquire(t.Context()); ok != (i < 2) || err != nil {
				t.Errorf("%d: %v, %v", i, ok, err)
			}
		}
	})
}

// A wait for a slot that ends names the semaphore, not a slot's key, and somebody who is in it.
func TestFullSemaphoreNamesItself(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		mine := p.Locker(t).Semaphore(harness.Key, 1)
		slot, err := mine.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer slot.Unlock()
		_, err = p.Locker(t).Semaphore(harness.Key, 1).Acquire(t.Context(), advisory.MaxWait(0))
		busy, ok := errors.AsType[*advisory.NotAcquiredError](err)
		if !ok || busy.Key != harness.Key || len(busy.Holders) != 1 {
			t.Error(err)
		}
	})
}
