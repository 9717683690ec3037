package wait

import (
	"cmp"
	"context"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/settings"
)

// longWait is the default of [advisory.WithWaitingAfter].
const longWait = 5 * time.Second

// longEvents sends the events of one long wait. The zero longEvents has sent none.
type longEvents struct{ next time.Duration }

// left returns how long it is until an event is due.
func (l *longEvents) left(s settings.Call, start time.Time) time.Duration {
	return cmp.Or(l.next, s.WaitingAfter, longWait) - time.Since(start)
}

// report sends an event.
func (l *longEvents) report(ctx context.Context, o advisory.Observer, k advisory.Key, s settings.Call, start time.Time, holders []advisory.Holder) {
	waited := time.Since(start)
	l.next = 2 * waited
	o.Observe(ctx, advisory.Event{Kind: advisory.Waiting, Key: k, Mode: s.Mode, Label: s.Label, Waited: waited, Holders: holders})
}

// Long sends the events of a long wait to o until stop is called, for a wait whose own goroutine
// blocks. After stop has returned no event follows. If o is nil, Long does nothing.
//
// holders returns who holds k; nil if it cannot be asked. Its ctx ends with stop, which does not wait
// for it: so it may be slow.
func Long(ctx context.Context, o advisory.Observer, k advisory.Key, s settings.Call, start time.Time, holders func(context.Context) []advisory.Holder) (stop func()) {
	if o == nil {
		return func() {}
	}
	var (
		l       longEvents
		timer   *time.Timer
		stopped bool
	)
	asking, cancel := context.WithCancel(context.WithoutCancel(ctx))
	turn := make(chan struct{}, 1) // guards the variables above
	turn <- struct{}{}
	for l.next = cmp.Or(s.WaitingAfter, longWait); l.next <= time.Since(start); l.next *= 2 { // an earlier part of the call reported it
	}
	timer = time.AfterFunc(l.left(s, start), func() {
		var hs []advisory.Holder
		if holders != nil {
			hs = holders(asking)
		}
		turn <- struct{}{}
		if !stopped {
			l.report(ctx, o, k, s, start, hs)
			timer.Reset(l.left(s, start))
		}
		<-turn
	})
	<-turn
	return func() {
		timer.Stop()
		cancel()
		turn <- struct{}{}
		stopped = true
		<-turn
	}
}
