package locker

import (
	"errors"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// A standing is what the last beat showed of a proof that is held.
type standing uint8

const (
	standsConfirmed standing = iota // standbys confirmed it, or its answer is not due yet
	standsDoubted                   // it was not confirmed: the locks end D after the last that was
	standsAlone                     // there are no names of standbys, and the Locker does without
)

// unnamed records that the server says in its answer to a beat that it has no names of standbys.
//
// With [WithStandbyIfNamed] this answer counts as that of a ping does: D begins when the beat was
// sent. So a beat that waited and was ended by a reload counts for nothing, and the next one counts
// from when it was sent itself. Once there are names, no answer says any more that there are none,
// and a confirmation must come within D of the last that did.
func (p *proof) unnamed(sent time.Time) {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if p.l.settings.StandbyIfNamed && p.l.wasConfirmed {
		p.count(sent, true)
	} else {
		p.fail(errNoStandby)
	}
}

// whyDoubted returns why the last beat was not confirmed, or nil. The mutex is held.
func (p *proof) whyDoubted() error {
	if p.late() {
		return p.waits()
	}
	return p.doubt
}

// late reports whether a beat has waited for longer than the pause between two. The mutex is held.
func (p *proof) late() bool {
	return !p.beating.IsZero() && time.Since(p.beating) >= p.l.times.Beat
}

// waits is the reason while a beat has no answer. The mutex is held.
func (p *proof) waits() error {
	return fmt.Errorf("a commit waits for a standby, or its answer for the link, since %v", time.Since(p.beating).Round(time.Millisecond))
}

// standing returns what the last beat shows. The mutex is held.
func (p *proof) standing() standing {
	switch {
	case p.whyDoubted() == nil:
		return standsConfirmed
	case p.alone && !p.late():
		return standsAlone
	}
	return standsDoubted
}

// unconfirmed returns why the primary is in doubt, or nil. The mutex is held.
func (p *proof) unconfirmed() error {
	why := p.whyDoubted()
	if why == nil || errors.Is(why, advisory.ErrUnconfirmed) {
		return why
	}
	return fmt.Errorf("%w: %w", advisory.ErrUnconfirmed, why)
}

// awaitBeat has the Observer get an event if the beat that is sent now is not answered in time. The
// mutex is held.
func (p *proof) awaitBeat() {
	switch {
	case p.l.lockerObserver() == nil:
	case p.slow == nil:
		p.slow = time.AfterFunc(p.l.times.Beat, func() {
			p.l.mu.Lock()
			defer p.l.mu.Unlock()
			p.reportStanding()
		})
	default:
		p.slow.Reset(p.l.times.Beat)
	}
}

// reportStanding has the Observer get an event if the standing has changed. The mutex is held.
func (p *proof) reportStanding() {
	if p.phase != proofHeld || p.l.lockerObserver() == nil {
		return
	}
	now := p.standing()
	if now == p.reported {
		return
	}
	e := advisory.Event{Kind: advisory.Unconfirmed, Err: p.unconfirmed()}
	switch {
	case now == standsConfirmed:
		e.Kind, e.Waited = advisory.Confirmed, time.Since(p.doubtSince)
	case p.reported == standsConfirmed:
		p.doubtSince = time.Now()
	}
	if now == standsDoubted {
		e.Left = max(p.left(), time.Nanosecond)
	}
	p.reported = now
	p.events = append(p.events, e)
	if len(p.events) == 1 {
		go p.sendEvents()
	}
}

// sendEvents reports the events, in their order. The witness does not wait for the Observer.
func (p *proof) sendEvents() {
	for e, more := p.event(), true; more; e, more = p.nextEvent() {
		p.l.observe(e)
	}
}

// event returns the oldest event that is not reported. There is one.
func (p *proof) event() advisory.Event {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	return p.events[0]
}

// nextEvent drops the oldest event, which is reported now, and returns the one after it. If there is
// none, the next event has another goroutine report it.
func (p *proof) nextEvent() (e advisory.Event, more bool) {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	p.events = p.events[1:]
	if len(p.events) == 0 {
		return e, false
	}
	return p.events[0], true
}

// doubted returns why a server that sessions are on is not known to be the primary, or nil. It asks
// no server.
func (l *Locker) doubted() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.proofs {
		if p.phase != proofHeld {
			continue
		}
		if err := p.superseded(); err != nil {
			return err
		}
		if err := p.unconfirmed(); err != nil {
			return err
		}
	}
	return nil
}
