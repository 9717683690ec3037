package locker

import (
	"errors"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// A standing is what the last beat showed of a proof that is held. They are in order: the worst one of a
// Locker's proofs is reported.
type standing uint8

const (
	standsConfirmed standing = iota // standbys confirmed it, or its answer is not due yet
	standsAlone                     // there are no names of standbys, and the Locker does without
	standsDoubted                   // it was not confirmed: the locks end D after the last that was
)

// A doubtReport is what the Observer knows of a Locker's proofs. It outlasts each of them: a Locker that
// closes its idle sessions, or loses them, has had nothing confirmed by that.
type doubtReport struct {
	standing standing
	since    time.Time        // when it ceased to be standsConfirmed
	events   []advisory.Event // that are not reported
}

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
			p.l.reportStanding()
		})
	default:
		p.slow.Reset(p.l.times.Beat)
	}
}

// reportStanding has the Observer get an event if the standing of the proofs has changed. While none is
// held nothing is known, and it has not. The mutex is held.
func (l *Locker) reportStanding() {
	if l.lockerObserver() == nil {
		return
	}
	r := &l.doubt
	p, now := l.worstProof()
	if p == nil || now == r.standing {
		return
	}
	e := advisory.Event{Kind: advisory.Unconfirmed, Err: p.unconfirmed()}
	switch {
	case now == standsConfirmed:
		e.Kind, e.Waited = advisory.Confirmed, time.Since(r.since)
	case r.standing == standsConfirmed:
		r.since = time.Now()
	}
	if now == standsDoubted {
		e.Left = max(p.left(), time.Nanosecond)
	}
	r.standing = now
	r.events = append(r.events, e)
	if len(r.events) == 1 {
		go l.sendEvents()
	}
}

// worstProof returns which of the proofs that are held is in the worst standing, or nil. The mutex is
// held.
func (l *Locker) worstProof() (worst *proof, stands standing) {
	for _, p := range l.proofs {
		if p.phase != proofHeld {
			continue
		}
		if now := p.standing(); worst == nil || now > stands {
			worst, stands = p, now
		}
	}
	return worst, stands
}

// sendEvents reports the events, in their order. The witness does not wait for the Observer.
func (l *Locker) sendEvents() {
	for e, more := l.event(), true; more; e, more = l.nextEvent() {
		l.observe(e)
	}
}

// event returns the oldest event that is not reported. There is one.
func (l *Locker) event() advisory.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.doubt.events[0]
}

// nextEvent drops the oldest event, which is reported now, and returns the one after it. If there is
// none, the next event has another goroutine report it.
func (l *Locker) nextEvent() (e advisory.Event, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &l.doubt
	r.events = r.events[1:]
	if len(r.events) == 0 {
		return e, false
	}
	return r.events[0], true
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
