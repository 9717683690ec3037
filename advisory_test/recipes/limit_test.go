package recipes_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

func export(ctx context.Context, l *locker.Locker, job func(context.Context) error) error {
	return l.Semaphore(advisory.Name("exports"), 3).Do(ctx, job) // at most three in the whole fleet
}

func TestFleetWideLimit(t *testing.T) {
	url := pgtest.URL(t)
	var inside, peak atomic.Int32
	three := make(chan bool)
	job := func(ctx context.Context) error {
		n := inside.Add(1)
		defer inside.Add(-1)
		if n > 3 {
			t.Errorf("%d at once", n)
		}
		if n == 3 && peak.Swap(3) != 3 {
			close(three)
		}
		select {
		case <-three:
			time.Sleep(10 * time.Millisecond)
			return nil
		case <-time.After(time.Minute):
			t.Error("there are never three")
			return nil
		}
	}
	ended := make(chan error, 12)
	for range 3 {
		l := newLocker(t, url)
		for range 4 {
			go func() { ended <- export(t.Context(), l, job) }()
		}
	}
	for range 12 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
