package wait

import (
	"context"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/settings"
)

// longWait is the duration after which the Observer gets a Waiting event. It gets another each time
// that the wait has doubled.
const longWait = 5 * time.Second

// longEvents sends the events of one long wait. The zero longEvents has sent none.
type longEvents struct{ next time.Duration }

// report sends an event if one is due.
func (l *longEvents) report(ctx context.Context, o advisory.Observer, k advisory.Key, s settings.Call, start time.Time) {
	if waited := time.Since(start); o != nil && waited >= max(l.next, longWait) {
		l.next = 2 * waited
		o.Observe(ctx, advisory.Event{Kind: advisory.Waiting, Key: k, Mode: s.Mode, Label: s.Label, Waited: waited})
	}
}

// Long sends the events of a long wait to o until stop is called, for a wait that blocks in one
// statement. After stop has returned no event follows. If o is nil, Long does nothing.
func Long(ctx context.Context, o advisory.Observer, k advisory.Key, s settings.Call, start time.Time) (stop func()) {
	if o == nil {
		return func() {}
	}
	var (
		l       longEvents
		timer   *time.Timer
		stopped bool
	)
	turn := make(chan struct{}, 1) // guards the variables above
	turn <- struct{}{}
	timer = time.AfterFunc(longWait-time.Since(start), func() {
		turn <- struct{}{}
		if !stopped {
			l.report(ctx, o, k, s, start)
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
