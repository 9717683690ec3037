package locker

import (
	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// A gate decides, for one key, which caller of this process asks the server. PostgreSQL grants a
// session a lock that the session already has, so two callers on one session would both win. Callers
// queue at the gate in the order in which they come, and only the front asks the server.
//
// The Locker's mutex guards all of it.
type gate struct {
	l     *Locker
	key   advisory.Key
	queue line
	phase gatePhase
	hold  *hold // what this process holds on the server, if anything
	// waiter waits on the server for the front. A hold may have been won by a reader's try
	// meanwhile: then the wait is being cut.
	waiter *session
	listed bool // is on the Locker's list of polled gates, though it may be polled no more

	// probing: a question for readers' tries is under way, while a session waits or the hold is wanted.
	probing bool
	// refusedAt has, for each mode, the stamp of the last statement that the server refused: an
	// answer for all calls that began before it was sent.
	refusedAt [2]uint64
	// failed is the last statement for readers' tries that failed, for the calls that watch the gate.
	failed failure
	// watched counts the calls that need refusedAt and failed.
	watched int

	// leaving is where the last user of the hold waits for its end, if a statement
	// about the key was under way then.
	leaving chan error
}

// A failure is the error of a statement, with its stamp.
type failure struct {
	err   error
	stamp uint64
}

// gate returns the gate of k.
func (l *Locker) gate(k advisory.Key) *gate {
	g := l.gates[k]
	if g == nil {
		g = &gate{l: l, key: k, phase: gateIdle}
		l.gates[k] = g
	}
	return g
}

// stamp numbers the calls and the statements in the order in which they come: a statement
// answers the calls whose stamps are not above its own. The mutex is held.
func (l *Locker) stamp() uint64 {
	l.stamps++
	return l.stamps
}

// enqueue queues r, or answers it at once. It refuses a try only if a caller of this process holds
// the key, or asked for it before, in a mode that excludes r.
func (g *gate) enqueue(r *request) {
	r.gate, r.stamp = g, g.l.stamp()
	if r.patient && g.l.pausing() {
		r.answer(g.l.outage.err)
	} else if r.once && (g.queue.conflicts(r.settings.Mode) || g.hold != nil && !g.busy() && excludes(g.hold.mode, r.settings.Mode)) {
		r.answer(nil)
	} else {
		g.queue.push(r)
	}
	g.advance()
}

// join lets r, which came at that stamp and has not queued since, share the lock that is held. No
// writer came before r. Readers who queue keep their turn: a statement for them may be under way,
// whose answer is of no use to a reader that came after it was sent.
func (g *gate) join(r *request, stamp uint64) {
	r.gate, r.stamp = g, stamp
	g.queue.pushShared(r)
	g.advance()
}

// dequeue removes r, whose caller has stopped waiting, from the queue.
func (g *gate) dequeue(r *request) {
	g.queue.remove(r)
	if g.waiter != nil && !g.waiter.waitsAs(g) {
		g.waiter.cutSlice()
	}
	g.advance()
}

// advance serves the queue as far as it can be served now.
func (g *gate) advance() {
	g.advanceFront()
	g.advanceTries()
	if g.queue.front() == nil {
		g.endPolling()
		if g.phase == gateIdle && !g.probing && g.watched == 0 && g.l.gates[g.key] == g {
			delete(g.l.gates, g.key)
		}
	}
}

// advanceFront serves the front of the queue.
func (g *gate) advanceFront() {
	for r := g.queue.front(); r != nil; r = g.queue.front() {
		switch {
		case g.phase == gateHeld && g.hold.admits(r):
			g.handOver(r)
		case g.phase == gateIdle && !g.probing && !r.once && g.l.pausing():
			g.l.pollFor(g)
			return
		case g.phase == gateIdle && !g.probing:
			g.tryFront(r)
		case g.phase == gateWaiting && !g.waiter.waitsAs(g):
			g.waiter.cutSlice()
			return
		default:
			return // until a release, an answer or the next poll
		}
	}
}

// tryFront asks the server once, for r, which is the front.
func (g *gate) tryFront(r *request) {
	s, err := g.l.frontSession()
	if err != nil {
		g.queue.remove(r)
		r.answer(err)
		return
	}
	g.beginStatement()
	mode, upTo := r.settings.Mode, g.l.stamp()
	s.submit(&op{tries: 1, req: &lockfn.Request{Op: lockfn.OpTry, Key: g.key, Mode: mode}, done: func(ok bool, token uint64, err error) {
		g.endStatement()
		switch {
		case (lockfn.Canceled(err) || r.again(err)) && !r.answered:
			if r.once || r.ended < maxEnded {
				g.endPolling()
			} else if !g.isPolled() { // one session after another ends
				g.l.pollFor(g)
			}
			g.advance() // once more, or on another session
		case err != nil && !s.opened():
			g.unopened(err)
		case err != nil:
			g.fail(r, unheld(err))
			g.advance()
		case ok:
			g.granted(s, mode, token, upTo)
		default:
			g.refused(mode, upTo)
		}
	}})
}

// refused handles the answer that another session has the lock. It is the answer for all tries that
// came before the statement.
func (g *gate) refused(mode advisory.Mode, upTo uint64) {
	g.refusedAt[mode] = upTo
	g.refuseTries(mode, upTo)
	front := g.queue.front()
	switch {
	case front == nil:
	case front.once || front.settings.Mode != mode || front.stamp > upTo:
		g.endPolling()
	case !g.isPolled():
		g.l.waitFor(g)
	}
	g.advance()
}

// fail answers r with err.
func (g *gate) fail(r *request, err error) {
	g.endPolling()
	g.queue.remove(r)
	r.answer(err)
}

// unopened answers the requests of the queue with err, because no session can be opened. To find that
// out for each of them could take long. Those that wait go on if a later attempt may succeed.
func (g *gate) unopened(err error) {
	if g.l.outlasts(err) {
		g.queue.answerTries(err)
	} else {
		g.endPolling()
		g.queue.answerAll(err)
	}
	g.advance()
}
