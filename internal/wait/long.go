package wait

import (
	"context"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/settings"
)

// Long waits are told to the Observer after longWait, and then each time that the
// wait has doubled.
const longWait = 5 * time.Second

// long tells of a wait that comes by now and then. The zero long has told nothing yet.
type long struct{ next time.Duration }

func (l *long) look(ctx context.Context, o advisory.Observer, k advisory.Key, s settings.Call, start time.Time) {
	if waited := time.Since(start); o != nil && waited >= max(l.next, longWait) {
		l.next = 2 * waited
		o.Observe(ctx, advisory.Event{Kind: advisory.Waiting, Key: k, Mode: s.Mode, Label: s.Label, Waited: waited})
	}
}

// Long tells o, if there is one, of a wait that sits still, until stop is called. After
// stop has returned nothing more is told.
func Long(ctx context.Context, o advisory.Observer, k advisory.Key, s settings.Call, start time.Time) (stop func()) {
	if o == nil {
		return func() {}
	}
	var (
		l       long
		timer   *time.Timer
		stopped bool
	)
	turn := make(chan struct{}, 1) // whoever has filled it may touch these
	turn <- struct{}{}
	timer = time.AfterFunc(longWait-time.Since(start), func() {
		turn <- struct{}{}
		if !stopped {
			l.look(ctx, o, k, s, start)
			timer.Reset(max(l.next, longWait) - time.Since(start))
		}
		<-turn
	})
	<-turn
	return func() {
		timer.Stop()
		turn <- struct{}{}
		stopped = true
		<-turn
	}
}
