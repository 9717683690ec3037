package locker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/settings"
)

// A Locker without an Observer allocates nothing for one.
func TestNoObserverCostsNothing(t *testing.T) {
	l := &Locker{}
	ctx, start, s := context.Background(), time.Now(), settings.Call{}
	h := &handle{key: advisory.Int64(4820), ctx: ctx, hold: &hold{gate: &gate{l: l}, session: &session{l: l}, users: map[*handle]struct{}{}}}
	h.hold.users[h] = struct{}{}
	lost := errors.New("lost")
	for name, f := range map[string]func(){
		"a call that got the lock":     func() { l.observeEnd(ctx, s, h.key, h, start, nil) },
		"a call that did not":          func() { l.observeEnd(ctx, s, h.key, nil, start, lost) },
		"a lock that stays in process": func() { h.awaitRelease(release{}) },
		"a lost lock":                  func() { l.observeLoss(h.hold, lost) },
		"a session":                    func() { l.observe(advisory.Event{Kind: advisory.SessionOpened, PID: 1}) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
