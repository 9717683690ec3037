package locker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// handOverFor is for how long, after the server granted a lock, this process may hand
// it from one of its callers to the next without giving others their turn.
const handOverFor = 50 * time.Millisecond

// A gate decides, for one key, which caller of this process goes to the server:
// PostgreSQL grants a session a lock that it has already, so that two callers on one
// session would both win. Callers queue here, first come first served, and only the
// front talks to the server.
//
// All of it is guarded by the Locker's mutex.
type gate struct {
	l     *Locker
	key   advisory.Key
	queue []*request
	hold  *hold // what this process holds on the server, if anything

	// At most one of these, and only without a hold:
	busy   bool     // a statement about the key is under way (with a hold, too)
	waiter *session // waits on the server for the front
	polled bool     // is tried now and then for the front
	listed bool     // is on the list of those that are; it may be there in vain

	// leaving is where the last user of the hold waits for its end, if a statement
	// about the key was under way then.
	leaving chan error
}

// A hold is a lock that a session of this process holds on the server. Readers share
// one.
type hold struct {
	gate    *gate
	session *session
	mode    advisory.Mode
	since   time.Time // the server granted it
	users   map[*handle]struct{}
	wanted  bool          // somebody waits for it on the server, as of the last ping
	dead    error         // it is gone with its session
	gone    chan struct{} // closed when it is dead
}

// A request is a caller that wants the lock.
type request struct {
	gate     *gate
	ctx      context.Context
	settings advisory.Settings
	once     bool   // a try
	ended    int    // sessions that ended before they answered
	claim    *claim // shared with requests of which only one is to be granted; may be nil
	settled  bool
	lock     *handle // if it was granted
	err      error
	done     chan struct{}
}

// A claim is shared by several requests of one caller. The first that is granted, or
// fails, ends it.
type claim struct {
	won  *request
	done chan struct{}
}

func (c *claim) end(r *request) {
	if c.won == nil {
		c.won = r
		close(c.done)
	}
}

func (r *request) settle(err error) {
	if r.settled {
		return
	}
	r.settled, r.err = true, err
	close(r.done)
	if r.claim != nil && err != nil && !errors.Is(err, errLeft) {
		r.claim.end(r)
	}
}

// gate returns the gate of k.
func (l *Locker) gate(k advisory.Key) *gate {
	g := l.gates[k]
	if g == nil {
		g = &gate{l: l, key: k}
		l.gates[k] = g
	}
	return g
}

// enter queues r, or answers it at once.
func (g *gate) enter(r *request) {
	r.gate = g
	if r.once && (len(g.queue) > 0 || g.hold != nil && !g.hold.fits(r) && !g.busy) {
		r.settle(nil) // somebody of this process has it, or is before
		return
	}
	g.queue = append(g.queue, r)
	g.advance()
}

// leave takes r, whose caller does not wait any more, out of the queue.
func (g *gate) leave(r *request) {
	for i, q := range g.queue {
		if q == r {
			g.queue = append(g.queue[:i:i], g.queue[i+1:]...)
			break
		}
	}
	if g.waiter != nil && !g.waiter.waitsAs(g) {
		g.waiter.hurry()
	}
	g.advance()
}

// pop takes the front out of the queue, and keeps nothing of it in memory.
func (g *gate) pop() {
	g.queue[0] = nil
	if g.queue = g.queue[1:]; len(g.queue) == 0 {
		g.queue = nil
	}
}

// fits reports whether r can have its lock by what is held already.
func (h *hold) fits(r *request) bool {
	return h.dead == nil && !h.wanted && h.mode == advisory.Shared && r.settings.Mode == advisory.Shared
}

// advance serves the front of the queue as far as it can be served now.
func (g *gate) advance() {
	for len(g.queue) > 0 && !g.busy {
		r := g.queue[0]
		if r.settled || r.claim != nil && r.claim.won != nil {
			g.pop()
			r.settle(nil)
			continue
		}
		if g.hold != nil {
			if !g.hold.fits(r) {
				if r.once {
					g.pop()
					r.settle(nil)
					continue
				}
				return // until it is released
			}
			g.handTo(r)
			continue
		}
		if g.waiter != nil {
			if !g.waiter.waitsAs(g) {
				g.waiter.hurry()
			}
			return
		}
		if g.polled {
			return
		}
		g.try(r)
	}
	if len(g.queue) == 0 {
		g.polled = false // it stays listed, in vain
		if g.hold == nil && !g.busy && g.waiter == nil {
			delete(g.l.gates, g.key)
		}
	}
}

// handTo gives r, which is the front, the lock that is held.
func (g *gate) handTo(r *request) {
	h := g.hold
	if !g.l.settings.Fencing && h.session.fresh() {
		g.grant(r, 0, true)
		return
	}
	// A round trip, for a token or a sign of life.
	g.busy = true
	h.session.submit(&op{token: g.l.settings.Fencing, done: func(_ bool, token uint64, err error) {
		g.idle()
		if g.hold == h && len(g.queue) > 0 && g.queue[0] == r && !r.settled && (r.claim == nil || r.claim.won == nil) {
			if err == nil {
				g.grant(r, token, true)
			} else { // the server works, and would say so again
				g.queue = g.queue[1:]
				r.settle(err)
			}
		}
		g.resume(err == nil)
	}})
}

// resume goes on after a statement about a key that is held. If that has lost its last
// user meanwhile, it is handed on, if it may be, or released.
func (g *gate) resume(handOn bool) {
	if h := g.hold; h != nil && len(h.users) == 0 && !(handOn && g.pass()) {
		g.unlock(g.leaving)
		g.leaving = nil
	}
	g.ended(nil)
	g.advance()
}

// ended answers the last user of a hold, if it waits for its end.
func (g *gate) ended(err error) {
	if g.leaving != nil {
		g.leaving <- err
		g.leaving = nil
	}
}

// idle takes note that no statement about the key is under way any more.
func (g *gate) idle() {
	g.busy = false
	g.l.wakeWatchers()
}

// try asks the server once, for r, which is the front.
func (g *gate) try(r *request) {
	s, err := g.l.frontSession()
	if err != nil {
		g.pop()
		r.settle(err)
		return
	}
	g.busy = true
	mode := r.settings.Mode
	s.submit(&op{tries: 1, req: &lockfn.Request{Op: lockfn.OpTry, Key: g.key, Mode: mode}, done: func(ok bool, token uint64, err error) {
		g.idle()
		switch {
		case (lockfn.Canceled(err) || r.again(err)) && !r.settled:
			g.polled = false
			g.advance() // once more, or on another session
		case err != nil && !s.open:
			g.failAll(err)
		case err != nil:
			g.fail(r, unheld(err))
		case ok:
			g.granted(s, mode, token, r)
		default:
			g.refused(r)
		}
	}})
}

// granted takes note that s holds the lock now, for the front. token was drawn while r waited:
// who has come since may know of a larger one, of a reader in another process.
func (g *gate) granted(s *session, mode advisory.Mode, token uint64, r *request) {
	g.polled = false
	g.hold = &hold{gate: g, session: s, mode: mode, since: time.Now(), users: map[*handle]struct{}{}, gone: make(chan struct{})}
	s.holds[g.key] = g.hold
	g.l.held++
	g.skip()
	switch {
	case len(g.queue) == 0 || g.queue[0].settings.Mode != mode:
		g.unlock(nil)
	case g.l.settings.Fencing && g.queue[0] != r:
		g.handTo(g.queue[0])
	default:
		g.grant(g.queue[0], token, false)
		g.advance()
	}
}

// skip drops requests from the front that want nothing any more.
func (g *gate) skip() {
	for len(g.queue) > 0 {
		r := g.queue[0]
		if !r.settled && (r.claim == nil || r.claim.won == nil) {
			return
		}
		g.pop()
		r.settle(nil)
	}
}

// refused: somebody else has the lock.
func (g *gate) refused(tried *request) {
	g.skip()
	if len(g.queue) == 0 || g.queue[0] != tried {
		g.polled = false
		g.advance()
		return
	}
	r := g.queue[0]
	if r.once {
		g.pop()
		r.settle(nil)
		g.advance()
		return
	}
	if !g.polled {
		g.l.waitFor(g)
	}
}

// fail answers r with err.
func (g *gate) fail(r *request, err error) {
	g.polled = false
	if len(g.queue) > 0 && g.queue[0] == r {
		g.pop()
	}
	r.settle(err)
	g.advance()
}

// failAll answers all that wait with err: there is no session to be had, and to find
// that out once for each of them could take long.
func (g *gate) failAll(err error) {
	g.polled = false
	queue := g.queue
	g.queue = nil
	for _, r := range queue {
		r.settle(err)
	}
	g.advance()
}

// grant gives r, which is the front, the lock that is held.
func (g *gate) grant(r *request, token uint64, local bool) {
	g.pop()
	if r.claim != nil {
		r.claim.end(r)
	}
	h := g.hold
	k := &handle{key: g.key, hold: h, mode: r.settings.Mode, token: token, local: local, since: time.Now(), settings: r.settings}
	k.ctx, k.cancel = context.WithCancelCause(context.WithoutCancel(r.ctx))
	h.users[k] = struct{}{}
	g.l.counts(k)
	r.lock = k
	r.settle(nil)
}

// release hands the lock, which nobody uses any more, to the next of this process, or
// back to the server. It returns where the answer comes, or nil if it was handed on.
func (g *gate) release() <-chan error {
	answer := make(chan error, 1)
	switch {
	case g.busy: // a token for another, or a downgrade
		g.leaving = answer
	case g.pass():
		return nil
	default:
		g.unlock(answer)
	}
	return answer
}

// pass hands the lock, which nobody uses any more, to the next of this process, if it may.
func (g *gate) pass() bool {
	h := g.hold
	g.skip()
	if len(g.queue) == 0 || g.queue[0].settings.Mode != h.mode || h.dead != nil || time.Since(h.since) >= handOverFor {
		return false
	}
	g.handTo(g.queue[0])
	g.advance()
	return true
}

// unlock gives the lock back to the server.
func (g *gate) unlock(answer chan error) {
	h := g.hold
	g.busy = true
	h.session.submit(&op{req: &lockfn.Request{Op: lockfn.OpUnlock, Key: g.key, Mode: h.mode}, done: func(ok bool, _ uint64, err error) {
		g.idle()
		if g.hold == h {
			g.hold = nil
			g.l.held--
			delete(h.session.holds, g.key)
		}
		if err == nil && !ok {
			err = fmt.Errorf("%w by its session any more", advisory.ErrNotHeld)
		}
		if answer != nil {
			answer <- err
		}
		h.session.spare()
		g.advance()
	}})
}

// lost tells the users of a hold that it is gone.
func (h *hold) lost(err error) {
	if h.dead != nil {
		return
	}
	h.dead = err
	close(h.gone)
	if h.gate.hold == h {
		h.gate.hold = nil
		h.gate.l.held--
		h.gate.ended(err)
	}
	for k := range h.users {
		k.cancel(err)
		if !k.works {
			h.gate.l.countsNoMore(k) // there is nothing to wait for
		}
	}
}
