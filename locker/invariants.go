package locker

import (
	"errors"
	"fmt"
)

// A requirement records an invariant that does not hold, if ok is false.
type requirement func(ok bool, format string, args ...any)

// broken returns the invariants of the Locker that do not hold, or nil. The mutex is held. Only
// test builds call it.
func (l *Locker) broken() error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("locker: "+format, args...))
		}
	}
	l.checkPolled(must)
	l.checkGates(must)
	l.checkSessions(must)
	l.checkUsers(must)
	return errors.Join(errs...)
}

// checkPolled checks the list of polled gates: which gates are on it, each once.
func (l *Locker) checkPolled(must requirement) {
	listed := map[*gate]int{}
	for _, g := range l.polled {
		listed[g]++
		must(g.listed, "a gate is on the list of polled gates and does not know it: %v", g.key)
	}
	must(len(l.polled) == 0 || l.polling, "keys are polled and no poll is due")
	for k, g := range l.gates {
		n := 0
		if g.listed {
			n = 1
		}
		must(listed[g] == n, "%v is %d times on the list of polled gates, want %d", k, listed[g], n)
	}
}

// checkGates checks each gate, and the count of locks that are held.
func (l *Locker) checkGates(must requirement) {
	held := 0
	for k, g := range l.gates {
		must(g.key == k, "the gate of %v is listed as that of %v", g.key, k)
		g.check(must)
		if g.hold != nil {
			held++
		}
	}
	must(int(l.held) == held, "%d locks are counted as held, %d are", l.held, held)
}

// checkSessions checks the lists of sessions: those that are alive, those that are lost, and the one
// in front.
func (l *Locker) checkSessions(must requirement) {
	for s := range l.sessions {
		s.check(must)
		must(s.alive(), "a session is on the list while %v", s.phase)
	}
	for k, p := range l.proofs {
		must(p.server == k && p.phase.is(proofSought|proofHeld) && len(p.sessions) > 0, "a proof is %v, for %d sessions", p.phase, len(p.sessions))
		for s := range p.sessions {
			must(s.proof == p && s.alive(), "a session of a proof is %v", s.phase)
		}
	}
	for s := range l.lost {
		must(!s.alive(), "a session is on the list of lost ones while %v", s.phase)
		for _, h := range s.holds {
			must(h.dead != nil, "a hold is alive while its session is %v: %v", s.phase, h.gate.key)
		}
	}
	if f := l.front; f != nil {
		_, ok := l.sessions[f]
		must(ok, "the front session is not on the list")
		must(f.wait.gate == nil, "the front session waits")
	}
}

// checkUsers checks that the users of all holds are counted, and nobody else.
func (l *Locker) checkUsers(must requirement) {
	for k, g := range l.gates {
		if g.hold == nil {
			continue
		}
		for u := range g.hold.users {
			_, ok := l.users[u]
			must(ok, "a user of %v is not counted", k)
		}
	}
	for u := range l.users {
		_, uses := u.hold.users[u]
		must(uses, "a user is counted that has given %v back", u.key)
		must(u.hold.dead == nil || u.works, "a user of a lost lock is counted that does not work under it: %v", u.key)
	}
}

// check checks the invariants of one gate.
func (g *gate) check(must requirement) {
	must((g.hold != nil) == g.phase.is(gateHeld|gateChanging), "%v is %v, hold: %t", g.key, g.phase, g.hold != nil)
	must(g.phase != gateWaiting || g.waiter != nil, "%v is waiting and no session waits", g.key)
	must(g.waiter == nil || g.phase.is(gateWaiting|gateHeld|gateChanging|gateAsking), "%v is %v while a session waits", g.key, g.phase)
	must(!g.isPolled() || g.listed, "%v is polled and not on the list", g.key)
	if s := g.waiter; s != nil {
		must(s.wait.gate == g, "a session waits for %v and does not know it", g.key)
		must(s.alive(), "a session that is %v waits for %v", s.phase, g.key)
		must(g.hold == nil || s.wait.cut, "%v is held while a session goes on waiting for it", g.key)
	}
	if h := g.hold; h != nil {
		must(h.gate == g && h.dead == nil, "the hold of %v is another gate's or dead", g.key)
		must(h.session.alive(), "%v is held by a session that is %v", g.key, h.session.phase)
		must(h.session.holds[g.key] == h, "%v is held by a session that does not know it", g.key)
		must(g.phase != gateHeld || len(h.users) > 0, "%v is held for nobody", g.key)
		for u := range h.users {
			must(u.hold == h, "a user of %v has another hold", g.key)
		}
	}
	if g.phase == gateIdle && !g.probing {
		for e := g.queue.all.Front(); e != nil; e = e.Next() {
			if e.Value.(*request).live() {
				must(false, "a request queues for %v behind nobody", g.key)
				break
			}
		}
	}
}

// check checks the invariants of one session that is on the Locker's list.
func (s *session) check(must requirement) {
	g := s.wait.gate
	must(s.phase == sessionOpening || (g != nil) == s.phase.is(sessionWaiting|sessionSlicing|sessionSettling), "a session is %v, waits: %t", s.phase, g != nil)
	must(g == nil || g.waiter == s, "a session waits for a key that does not know it")
	must(s.opened() == (s.phase != sessionOpening), "a session of pid %d is %v", s.pid, s.phase)
	if s.l.settings.Standby && s.opened() {
		must(s.proof != nil && s.proof.phase == proofHeld && s.l.proofs[s.proof.server] == s.proof, "a session is %v without a proof", s.phase)
	}
	for k, h := range s.holds {
		must(h.session == s, "a session has the hold of another: %v", k)
		must(h.dead == nil && h.gate.hold == h && h.gate.key == k, "a session has a hold that its gate does not have: %v", k)
	}
}

// checkInvariants panics if an invariant of the Locker does not hold. Where there are many keys it
// checks the more seldom, so that a check costs each region the same. The mutex is held.
func checkInvariants(l *Locker) {
	if l.mu.regions++; l.mu.regions < len(l.gates)/64 {
		return
	}
	l.mu.regions = 0
	if err := l.broken(); err != nil {
		panic(err)
	}
}
