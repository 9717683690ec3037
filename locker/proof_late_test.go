package locker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// newProvenScene is a scene whose sessions have a proof, confirmed by a beat of that age.
func newProvenScene(age time.Duration) (scene, *proof) {
	c := newScene()
	p := &proof{l: c.l, server: "1 1", phase: proofHeld, settled: make(chan struct{}), sessions: map[*session]struct{}{}, since: time.Now().Add(-age)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	close(p.settled)
	p.watch = time.NewTimer(time.Hour) // it is late
	c.l.settings.Standby, c.l.proofs[p.server] = true, p
	for _, s := range []*session{c.front, c.waits} {
		s.proof, s.answered = p, time.Now()
		p.sessions[s] = struct{}{}
	}
	c.user.ctx, c.user.cancel = context.WithCancelCause(context.Background())
	return c, p
}

// A process that was stopped for longer than the deadline gives out nothing and goes on with nothing,
// though its timers come after its answers.
func TestProofOutlivesNoLateTimer(t *testing.T) {
	for name, act := range map[string]func(c scene, p *proof){
		"an answer": func(c scene, _ *proof) { c.front.deliver(nil, time.Now(), nil, nil) },
		"a slice's answer": func(c scene, _ *proof) {
			c.waits.recordSlice(c.waited, c.waited.key, advisory.Exclusive, sliceResult{sent: time.Now()})
		},
		"a confirmation": func(_ scene, p *proof) { p.confirm(time.Now()) },
		"the timer":      func(_ scene, p *proof) { p.overdue() },
	} {
		fresh, _ := newProvenScene(0)
		c, p := newProvenScene(fresh.l.times.Deadline + time.Millisecond)
		if c.l.Holds(c.held.key) {
			t.Errorf("%s: Holds before it", name)
		}
		if c.front.answeredLately() {
			t.Errorf("%s: a lock may be handed over before it", name)
		}
		c.front.l.closed = true // so that nothing is opened in its place
		act(c, p)
		if cause := context.Cause(c.user.ctx); !errors.Is(cause, advisory.ErrLost) || !errors.Is(cause, advisory.ErrUnconfirmed) {
			t.Errorf("%s: the lock's Context ends with %v", name, cause)
		}
		if c.front.alive() || c.waits.alive() || p.phase != proofEnded {
			t.Errorf("%s: the sessions are %v and %v, the proof is %v", name, c.front.phase, c.waits.phase, p.phase)
		}
	}
	c, p := newProvenScene(0)
	if p.overdue(); !c.l.Holds(c.held.key) || !c.front.answeredLately() || !c.front.alive() {
		t.Error("a fresh proof is not enough")
	}
}
