package locker

import (
	"context"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// handOverFor is for how long, after the server granted a lock, this process may hand
// it from one of its callers to the next without giving others their turn.
const handOverFor = 50 * time.Millisecond

// releaseExtra gives back a lock that the key's gate has no use for: it holds the key on another session.
func (s *session) releaseExtra(key advisory.Key, mode advisory.Mode) {
	s.submit(&op{req: &lockfn.Request{Op: lockfn.OpUnlock, Key: key, Mode: mode}, done: func(bool, uint64, error) { s.noteIdle() }})
}

// handOver gives r, which is the front, the lock that is held.
func (g *gate) handOver(r *request) {
	h := g.hold
	if !g.l.settings.Fencing && h.session.answeredLately() {
		g.grant(r, 0, true)
		return
	}
	// A round trip, for a token of r's own or for proof that the session lives, which readers who have
	// come by now share.
	g.beginStatement()
	upTo := g.l.stamp()
	h.session.submit(&op{token: g.l.settings.Fencing, done: func(_ bool, token uint64, err error) {
		g.endStatement()
		if g.hold == h {
			if err == nil {
				g.grantUpTo(upTo, token, true)
			} else { // the server works, and would say so again
				g.fail(r, err)
			}
		}
		g.afterStatement(err == nil)
	}})
}

// grantUpTo grants what is held to the front, if that came no later than the stamp; a shared lock
// to all readers who did, up to the first writer, unless each needs a token of its own.
func (g *gate) grantUpTo(upTo, token uint64, local bool) {
	for r := g.queue.front(); r != nil && r.stamp <= upTo && r.settings.Mode == g.hold.mode; r = g.queue.front() {
		g.grant(r, token, local)
		local = true
		if g.hold.mode == advisory.Exclusive || g.l.settings.Fencing {
			return
		}
	}
}

// afterStatement goes on after a statement about a key that is held. If that has lost its last
// user meanwhile, it is handed on, if it may be, or released.
func (g *gate) afterStatement(handOn bool) {
	if h := g.hold; h != nil && len(h.users) == 0 && !(handOn && g.handOn()) {
		g.unlockOnServer(g.leaving)
		g.leaving = nil
	}
	g.answerLast(nil)
	g.advance()
}

// answerLast answers the last user of a hold, if it waits for its end.
func (g *gate) answerLast(err error) {
	if g.leaving != nil {
		g.leaving <- err
		g.leaving = nil
	}
}

// granted takes note that s holds the lock now. token was drawn for requests up to that stamp:
// who has come since may know of a larger one, of a reader in another process.
func (g *gate) granted(s *session, mode advisory.Mode, token, upTo uint64) {
	g.endPolling()
	g.beginHold(&hold{gate: g, session: s, mode: mode, since: time.Now(), users: map[*handle]struct{}{}, gone: make(chan struct{})})
	front := g.queue.front()
	switch {
	case front == nil || front.settings.Mode != mode:
		g.unlockOnServer(nil)
	case g.l.settings.Fencing && front.stamp > upTo:
		g.handOver(front)
	case front.stamp > upTo:
		g.grant(front, token, false)
	default:
		g.grantUpTo(upTo, token, false)
	}
	g.advance()
}

// grant gives r, which is the front, the lock that is held.
func (g *gate) grant(r *request, token uint64, local bool) {
	g.queue.remove(r)
	if r.claim != nil {
		r.claim.end(r)
	}
	h := g.hold
	k := &handle{key: g.key, hold: h, mode: r.settings.Mode, token: token, local: local, since: time.Now(), settings: r.settings}
	k.ctx, k.cancel = context.WithCancelCause(context.WithoutCancel(r.ctx))
	h.users[k] = struct{}{}
	g.l.addUser(k)
	r.lock = k
	r.answer(nil)
}

// release hands the lock, which nobody uses any more, to the next of this process, or
// back to the server. It returns where the answer comes, or nil if it was handed on.
func (g *gate) release() <-chan error {
	answer := make(chan error, 1)
	switch {
	case g.busy(): // a token for another, or a downgrade
		g.leaving = answer
	case g.handOn():
		return nil
	default:
		g.unlockOnServer(answer)
	}
	return answer
}

// handOn hands the lock, which nobody uses any more, to the next of this process, if it may.
func (g *gate) handOn() bool {
	h := g.hold
	front := g.queue.front()
	if front == nil || front.settings.Mode != h.mode || h.dead != nil || time.Since(h.since) >= handOverFor {
		return false
	}
	g.handOver(front)
	g.advance()
	return true
}

// unlockOnServer gives the lock back to the server.
func (g *gate) unlockOnServer(answer chan error) {
	h := g.hold
	g.beginStatement()
	h.session.submit(&op{req: &lockfn.Request{Op: lockfn.OpUnlock, Key: g.key, Mode: h.mode}, done: func(ok bool, _ uint64, err error) {
		g.endStatement()
		if g.hold == h {
			g.endHold()
			delete(h.session.holds, g.key)
		}
		if err == nil && !ok {
			err = fmt.Errorf("%w by its session any more", advisory.ErrNotHeld)
		}
		if answer != nil {
			answer <- err
		}
		h.session.noteIdle()
		g.advance()
	}})
}

// noteIdle takes note that s may have nothing to do any more. The mutex is held.
func (s *session) noteIdle() {
	if len(s.holds) == 0 {
		s.idleSince = time.Now()
	}
}
