package wait

import (
	"context"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/settings"
)

// A call without an Observer allocates nothing for one.
func TestNoObserverCostsNothing(t *testing.T) {
	ctx, start := context.Background(), time.Now()
	key, s := advisory.Int64(4820), settings.Call{}
	w := Wait{Key: key, Start: start.Add(-time.Hour)}
	for name, f := range map[string]func(){
		"the end of a call":            func() { Observe(ctx, key, s, start, true, nil) },
		"a long wait in one statement": func() { Long(ctx, s.Observer, key, s, start, nil)() },
		"a long wait in rounds":        func() { w.reportLong() },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// The measure shows an allocation where there is one.
func TestObserverThatAllocatesIsMeasured(t *testing.T) {
	s := settings.Call{Observer: &allocating{}}
	if n := testing.AllocsPerRun(100, func() {
		Observe(context.Background(), advisory.Int64(4820), s, time.Now(), true, nil)
	}); n == 0 {
		t.Error("no allocation")
	}
}

type allocating struct{ last *advisory.Event }

func (a *allocating) Observe(_ context.Context, e advisory.Event) { a.last = &e }
