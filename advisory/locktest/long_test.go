package locktest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory/locktest"
)

type events []advisory.Event

func (es *events) Observe(_ context.Context, e advisory.Event) { *es = append(*es, e) }

// The Observer hears of a wait after 5 s, and each time that it has doubled, up to its end.
func TestLongWaitsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, key := locktest.New(), advisory.Int64(4820)
		release := l.Occupy(key)
		var seen events
		_, err := l.Lock(t.Context(), key, advisory.Shared, advisory.Label("account"), advisory.WithObserver(&seen), advisory.MaxWait(21*time.Second))
		if !errors.Is(err, advisory.ErrNotAcquired) {
			t.Fatal(err)
		}
		release()
		time.Sleep(time.Hour)
		var waits []time.Duration
		for _, e := range seen {
			if e.Key != key || e.Mode != advisory.Shared || e.Label != "account" {
				t.Errorf("%+v", e)
			}
			if e.Kind == advisory.Waiting {
				if len(e.Holders) != 1 || e.Holders[0].PID == 0 || e.Holders[0].Local {
					t.Errorf("holders %+v", e.Holders)
				}
				waits = append(waits, e.Waited/time.Second)
			}
		}
		if !slices.Equal(waits, []time.Duration{5, 10, 20}) || seen[len(seen)-1].Kind != advisory.NotAcquired {
			t.Errorf("reported after %d s; %+v", waits, seen)
		}
	})
}
