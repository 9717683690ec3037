package locker_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/locker"
)

// While there is no session that could guard those that wait, their slices are as short as is
// harmless without one.
func TestSlicesThatNobodyGuardsAreShort(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		f.taken(job)
		lock(t, l, advisory.Int64(1))
		ctx, cancel := context.WithCancel(context.Background())
		left := make(chan struct{})
		go func() { l.Lock(ctx, job); close(left) }()
		time.Sleep(time.Second)
		longest := func(after time.Time) (d time.Duration, n int) {
			for _, s := range f.statements(isSlice) {
				ms, err := strconv.Atoi(sliceTime.FindStringSubmatch(s.text)[1])
				if err != nil {
					t.Fatal(err)
				}
				if s.at.After(after) {
					d, n = max(d, time.Duration(ms)*time.Millisecond), n+1
				}
			}
			return d, n
		}
		if d, _ := longest(time.Time{}); d <= lockfn.MaxSlice {
			t.Errorf("guarded slices of %v", d)
		}
		f.set(func() { f.refused = errors.New("no more connections") })
		f.holder(advisory.Int64(1)).Close()
		time.Sleep(10 * time.Second) // a slice of before ends
		start := time.Now()
		time.Sleep(time.Minute)
		synctest.Wait()
		if d, n := longest(start); d > lockfn.MaxSlice || n == 0 {
			t.Errorf("%d slices that nobody guards, of up to %v", n, d)
		}
		cancel()
		<-left
	})
}
