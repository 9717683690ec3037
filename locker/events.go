package locker

import (
	"cmp"
	"context"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/settings"
	"github.com/pgadvisory/pgadvisory/internal/wait"
)

// observer returns the Observer of a call, else that of the Locker, else nil.
func (l *Locker) observer(s settings.Call) advisory.Observer {
	if s.Observer != nil {
		return s.Observer
	}
	return l.lockerObserver()
}

// lockerObserver returns the Observer of the Locker, or nil.
func (l *Locker) lockerObserver() advisory.Observer {
	o, _ := l.settings.Observer.(advisory.Observer)
	return o
}

// reportLong reports a long wait for key, and the holders of held, to the Observer of the call until
// stop is called.
func (l *Locker) reportLong(ctx context.Context, key, held advisory.Key, s settings.Call, start time.Time) (stop func()) {
	s.WaitingAfter = cmp.Or(s.WaitingAfter, l.settings.WaitingAfter)
	return wait.Long(ctx, l.observer(s), key, s, start, func(ctx context.Context) []advisory.Holder {
		return l.asked.holders(ctx, held, l.whoHolds)
	})
}

func (l *Locker) observe(e advisory.Event) {
	if o := l.lockerObserver(); o != nil {
		o.Observe(context.Background(), e)
	}
}

// observeEnd reports the end of a call to the Observer: with h, or without if that is nil. If the Observer panics
// nobody learns that the lock is held, and it is released.
func (l *Locker) observeEnd(ctx context.Context, s settings.Call, key advisory.Key, h *handle, start time.Time, err error) {
	o := l.observer(s)
	if o == nil {
		return
	}
	e := advisory.Event{Kind: advisory.NotAcquired, Key: key, Mode: s.Mode, Label: s.Label, Waited: time.Since(start), Err: err}
	reported := false
	if h != nil {
		e.Kind, e.Key, e.Local, e.PID = advisory.Acquired, h.key, h.local, h.hold.session.pid
		defer func() {
			if !reported {
				giveBack(advisory.Locks{h})
			}
		}()
	}
	o.Observe(ctx, e)
	reported = true
}

// observeLoss reports a lost hold to the Observers, later: nobody's callback runs in here. The mutex is held.
func (l *Locker) observeLoss(h *hold, cause error) {
	for u := range h.users {
		if o := l.observer(u.settings); o != nil {
			e := advisory.Event{Kind: advisory.Lost, Key: u.key, Mode: u.mode, Label: u.settings.Label, Held: time.Since(u.since), PID: h.session.pid, Err: cause}
			go o.Observe(u.ctx, e)
		}
	}
}
