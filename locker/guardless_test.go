package locker_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
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

func TestGuardAfterACancelThatIsNeverAnswered(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		f.taken(job)
		lock(t, l, advisory.Int64(1))
		first := f.holder(advisory.Int64(1)).pid
		ctx, cancel := context.WithCancel(context.Background())
		left := make(chan struct{})
		go func() { l.Lock(ctx, job); close(left) }()
		time.Sleep(time.Second)
		start := time.Now()
		f.set(func() { f.silent = func(s *fakeStatement) bool { return s.pid == first } })
		time.Sleep(40 * time.Second)
		guards := f.statements(func(s *fakeStatement) bool {
			return s.pid != first && strings.Contains(s.text, "pg_cancel_backend") && s.at.After(start)
		})
		pings := f.statements(func(s *fakeStatement) bool {
			return s.pid != first && (isPing(s) || strings.Contains(s.text, "pg_cancel_backend")) && s.at.After(start)
		})
		if len(guards) == 0 || len(pings) == 0 {
			t.Fatal(len(guards), len(pings))
		}
		if d := guards[0].at.Sub(pings[0].at); d > time.Second {
			t.Errorf("the new front session pinged first after %v and guarded first after %v", pings[0].at.Sub(start), guards[0].at.Sub(start))
		}
		cancel()
		<-left
	})
}
