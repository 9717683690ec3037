package locker

import (
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/settings"
)

// A scene is a Locker with a session that is ready, one that waits, a key that is held by a
// user, one that is waited for, and one that is polled.
type scene struct {
	l                     *Locker
	front, waits          *session
	held, waited, polling *gate
	user                  *handle
}

func newScene() scene {
	l := New(nil)
	newSession := func(pid int) *session {
		s := &session{l: l, phase: sessionOpening, wake: make(chan struct{}, 1), holds: map[advisory.Key]*hold{}}
		s.cancel = func() {}
		l.sessions[s] = struct{}{}
		s.beginReady(pid)
		return s
	}
	c := scene{l: l, front: newSession(1), waits: newSession(2)}
	l.front, l.polling = c.front, true
	c.held, c.waited, c.polling = l.gate(advisory.Int64(1)), l.gate(advisory.Int64(2)), l.gate(advisory.Int64(3))
	h := &hold{gate: c.held, session: c.front, users: map[*handle]struct{}{}, since: time.Now(), gone: make(chan struct{})}
	c.held.beginHold(h)
	c.user = &handle{key: c.held.key, hold: h}
	h.users[c.user] = struct{}{}
	l.addUser(c.user)
	for _, g := range []*gate{c.waited, c.polling} {
		g.queue.push(&request{gate: g, settings: settings.Call{}, done: make(chan struct{})})
	}
	c.waits.beginWait(c.waited)
	c.polling.beginPolling()
	return c
}

// Each invariant is broken once, and reported.
func TestBrokenInvariantsAreReported(t *testing.T) {
	if err := newScene().l.broken(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		breaks func(scene)
		want   string
	}{
		{func(c scene) { c.held.phase = gateIdle }, "is idle, hold: true"},
		{func(c scene) { c.held.phase = gateWaiting }, "waiting and no session waits"},
		{func(c scene) { c.waited.phase = gatePolled }, "is polled while a session waits"},
		{func(c scene) { c.waited.phase = gateIdle }, "is idle while a session waits"},
		{func(c scene) { c.polling.phase = gateIdle }, "behind nobody"},
		{func(c scene) { c.polling.listed = false }, "does not know it"},
		{func(c scene) { c.l.polled = nil }, "0 times on the list"},
		{func(c scene) { c.l.polled = append(c.l.polled, c.polling) }, "2 times on the list"},
		{func(c scene) { c.l.polling = false }, "no poll is due"},
		{func(c scene) { c.waited.waiter = c.front }, "waits for a key that does not know it"},
		{func(c scene) { c.waits.wait.gate = nil }, "waits: false"},
		{func(c scene) { c.waits.phase = sessionReady }, "is ready, waits: true"},
		{func(c scene) { c.waits.phase = sessionLost }, "on the list while lost"},
		{func(c scene) { c.waits.pid = 0 }, "of pid 0"},
		{func(c scene) { c.l.lost[c.waits] = struct{}{} }, "on the list of lost ones while waiting"},
		{func(c scene) { c.front.phase = sessionLost }, "held by a session that is lost"},
		{func(c scene) { delete(c.l.sessions, c.front) }, "front session is not on the list"},
		{func(c scene) { c.l.front = c.waits }, "front session waits"},
		{func(c scene) { delete(c.front.holds, c.held.key) }, "held by a session that does not know it"},
		{func(c scene) { c.held.phase, c.held.hold, c.l.held = gateIdle, nil, 0 }, "has a hold that its gate does not have"},
		{func(c scene) { c.held.hold.dead = advisory.ErrLost }, "another gate's or dead"},
		{func(c scene) { c.front.end(sessionLost, advisory.ErrLost) }, "a hold is alive while its session is lost"},
		{func(c scene) { c.held.hold.session = c.waits }, "has the hold of another"},
		{func(c scene) { delete(c.held.hold.users, c.user) }, "is held for nobody"},
		{func(c scene) { delete(c.held.hold.users, c.user) }, "has given"},
		{func(c scene) { c.user.hold = &hold{} }, "has another hold"},
		{func(c scene) { delete(c.l.users, c.user) }, "is not counted"},
		{func(c scene) { c.held.hold.dead = advisory.ErrLost }, "does not work under it"},
		{func(c scene) { c.l.held++ }, "counted as held"},
		{func(c scene) { c.held.key = advisory.Int64(9) }, "listed as that of"},
		{func(c scene) { c.held.waiter, c.waits.wait.gate = c.waits, c.held }, "goes on waiting"},
	} {
		s := newScene()
		c.breaks(s)
		if err := s.l.broken(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want %q, got: %v", c.want, err)
		}
	}
}

// So are those of a proof.
func TestBrokenInvariantsOfAProofAreReported(t *testing.T) {
	if c, _ := newProvenScene(0); c.l.broken() != nil {
		t.Fatal(c.l.broken())
	}
	for _, v := range []struct {
		breaks func(scene, *proof)
		want   string
	}{
		{func(c scene, p *proof) { p.phase = proofSought }, "a session is ready without a proof"},
		{func(c scene, p *proof) { p.phase = proofEnded }, "a proof is ended, for 2 sessions"},
		{func(c scene, p *proof) { c.front.proof = nil }, "a session is ready without a proof"},
		{func(c scene, p *proof) { delete(c.l.proofs, p.server) }, "without a proof"},
		{func(c scene, p *proof) { clear(p.sessions) }, "for 0 sessions"},
		{func(c scene, p *proof) { c.waits.phase = sessionLost }, "a session of a proof is lost"},
	} {
		c, p := newProvenScene(0)
		v.breaks(c, p)
		if err := c.l.broken(); err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("want %q, got: %v", v.want, err)
		}
	}
}

// A transition that the diagrams do not have panics in test builds, and so does the end of a
// locked region in which an invariant was broken.
func TestIllegalTransitionsPanic(t *testing.T) {
	for name, f := range map[string]func(scene){
		"beginStatement": func(c scene) { c.waited.beginStatement() },
		"endStatement":   func(c scene) { c.held.endStatement() },
		"beginHold":      func(c scene) { c.held.beginHold(c.held.hold) },
		"endHold":        func(c scene) { c.waited.endHold() },
		"beginPolling":   func(c scene) { c.held.beginPolling() },
		"beginReady":     func(c scene) { c.front.beginReady(3) },
		"beginWait":      func(c scene) { c.waits.beginWait(c.l.gate(advisory.Int64(4))) },
		"beginSlice":     func(c scene) { c.front.beginSlice() },
		"beginNextSlice": func(c scene) { c.waits.beginNextSlice() },
		"end":            func(c scene) { c.front.phase = sessionClosed; c.front.end(sessionLost, nil) },
		"Unlock":         func(c scene) { c.l.mu.Lock(); c.l.held = 9; c.l.mu.Unlock() },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", name)
				}
			}()
			f(newScene())
		}()
	}
}
