package locker

import (
	"container/list"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/settings"
	"github.com/pgadvisory/pgadvisory/internal/statement"
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
	queue line
	hold  *hold // what this process holds on the server, if anything

	// At most one of these, and only without a hold, except as noted:
	busy   bool     // a statement about the key is under way (with a hold, too)
	waiter *session // waits on the server for the front (with a hold that a reader's try won, too, until its slice ends)
	polled bool     // is tried now and then for the front
	listed bool     // is on the list of those that are, though it may be polled no more

	// asking: a question for readers' tries is under way, while a session waits or the hold is wanted.
	asking bool
	// refusedAt has, for each mode, the stamp of the last statement that the server refused: an
	// answer for all calls that began before it was sent.
	refusedAt [2]uint64
	// watched counts the calls that need refusedAt.
	watched int

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
	settings settings.Call
	once     bool   // a try
	stamp    uint64 // when it came: see Locker.stamp
	ended    int    // sessions that ended before they answered
	claim    *claim // shared with requests of which only one is to be granted; may be nil
	settled  bool
	lock     *handle // if it was granted
	err      error
	done     chan struct{}

	inAll, inExclusive, inTries *list.Element // its places in the line
}

// A claim is shared by several requests of one caller. The first that is granted, or
// fails, ends it and its ctx.
type claim struct {
	won    *request
	ctx    context.Context
	cancel context.CancelFunc
}

func (c *claim) end(r *request) {
	if c.won == nil {
		c.won = r
		c.cancel()
	}
}

func (r *request) settle(err error) {
	if r.settled {
		return
	}
	r.settled, r.err = true, err
	close(r.done)
	if r.claim != nil && err != nil && !r.once && !errors.Is(err, errLeft) {
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

// stamp numbers the calls and the statements in the order in which they come: a statement
// answers the calls whose stamps are not above its own. The mutex is held.
func (l *Locker) stamp() uint64 {
	l.stamps++
	return l.stamps
}

// enter queues r, or answers it at once. A try is refused here only if somebody of this process
// is in the way: who holds the key, or asked for it before, in a mode that excludes r.
func (g *gate) enter(r *request) {
	r.gate, r.stamp = g, g.l.stamp()
	if r.once && (g.queue.conflicts(r.settings.Mode) || g.hold != nil && !g.busy && excludes(g.hold.mode, r.settings.Mode)) {
		r.settle(nil)
	} else {
		g.queue.push(r)
	}
	g.advance()
}

// join has r, which came at that stamp and has not queued since, share the lock that is held.
func (g *gate) join(r *request, stamp uint64) {
	r.gate, r.stamp = g, stamp
	g.queue.pushFront(r)
	g.advance()
}

// leave takes r, whose caller does not wait any more, out of the queue.
func (g *gate) leave(r *request) {
	g.queue.remove(r)
	if g.waiter != nil && !g.waiter.waitsAs(g) {
		g.waiter.hurry()
	}
	g.advance()
}

// fits reports whether r can have its lock by what is held already.
func (h *hold) fits(r *request) bool {
	return h.dead == nil && !h.wanted && h.mode == advisory.Shared && r.settings.Mode == advisory.Shared
}

// advance serves the queue as far as it can be served now.
func (g *gate) advance() {
	g.advanceFront()
	g.advanceTries()
	if g.queue.front() == nil {
		g.polled = false // it stays listed until the next poll
		if g.hold == nil && !g.busy && !g.asking && g.waiter == nil && g.watched == 0 && g.l.gates[g.key] == g {
			delete(g.l.gates, g.key)
		}
	}
}

// advanceFront serves the front of the queue.
func (g *gate) advanceFront() {
	for r := g.queue.front(); r != nil && !g.busy; r = g.queue.front() {
		switch {
		case g.hold != nil && g.hold.fits(r):
			g.handTo(r)
		case g.hold != nil:
			return // until it is released
		case g.waiter != nil:
			if !g.waiter.waitsAs(g) {
				g.waiter.hurry()
			}
			return
		case g.polled || g.asking:
			return
		default:
			g.try(r)
		}
	}
}

// advanceTries has those tries answered that are not served with the front. What excludes them
// in this process they were measured by as they came, so they are all of one mode.
func (g *gate) advanceTries() {
	r := g.queue.try()
	switch {
	case r == nil || g.busy || g.asking:
	case g.hold != nil && excludes(g.hold.mode, r.settings.Mode):
		g.refuseTries(r.settings.Mode, g.l.stamps)
	case g.hold != nil && g.hold.wanted:
		g.askWhetherWanted()
	case g.hold != nil:
	case g.waiter != nil && g.waiter.waitsAs(g) && !g.waiter.hurried:
		g.askBeside(r.settings.Mode)
	case g.waiter == nil && g.polled:
		g.try(g.queue.front()) // now, and not with the next poll
	}
}

// refuseTries refuses the tries of that mode that came no later than the stamp.
func (g *gate) refuseTries(mode advisory.Mode, upTo uint64) {
	g.failTries(mode, upTo, nil)
}

func (g *gate) failTries(mode advisory.Mode, upTo uint64, err error) {
	for r := g.queue.try(); r != nil && r.stamp <= upTo && r.settings.Mode == mode; r = g.queue.try() {
		g.queue.remove(r)
		r.settle(err)
	}
}

// askWhetherWanted finds out, for readers' tries, whether somebody still waits on the server for
// the shared lock that is held: the last ping may have been a heartbeat ago.
func (g *gate) askWhetherWanted() {
	h, upTo := g.hold, g.l.stamp()
	g.asking = true
	wanted := false
	h.session.submit(&op{
		query: func(ctx context.Context, conn *sql.Conn) error {
			wanted = false
			return statement.Session{Ctx: ctx, On: conn}.Query(lockfn.Wanted, nil, func(rows *sql.Rows) error {
				k, err := lockfn.ScanHeld(rows)
				wanted = wanted || k.Key == g.key
				return err
			})
		},
		done: func(_ bool, _ uint64, err error) {
			g.answeredTries()
			if g.hold == h && err == nil {
				h.wanted = wanted
			}
			if g.hold == h && h.wanted {
				g.refusedAt[advisory.Shared] = upTo
				g.failTries(advisory.Shared, upTo, err)
			}
			g.advance()
		},
	})
}

// askBeside tries the key for readers' tries while another session waits for it, whose answer may
// be on its way. If it is granted, the one that waits waits no more, and what that is granted
// is given back.
func (g *gate) askBeside(mode advisory.Mode) {
	s, err := g.l.frontSession()
	if err != nil {
		return // closed: all have been answered
	}
	upTo := g.l.stamp()
	g.asking = true
	s.submit(&op{tries: 1, req: &lockfn.Request{Op: lockfn.OpTry, Key: g.key, Mode: mode}, done: func(ok bool, token uint64, err error) {
		g.answeredTries()
		front := g.queue.front()
		switch {
		case lockfn.Canceled(err) || errors.Is(err, advisory.ErrLost): // once more
		case err != nil:
			g.failTries(mode, upTo, err)
		case !ok:
			g.refusedAt[mode] = upTo
			g.refuseTries(mode, upTo)
		case g.hold != nil || g.busy || front == nil || front.settings.Mode != mode:
			s.undo(g.key, mode)
		default:
			if g.waiter != nil {
				g.waiter.hurry()
			}
			g.granted(s, mode, token, upTo)
			return
		}
		g.advance()
	}})
}

func (g *gate) answeredTries() {
	g.asking = false
	g.l.wakeWatchers()
}

// undo gives back a lock that the key's gate has no use for: it holds the key on another session.
func (s *session) undo(key advisory.Key, mode advisory.Mode) {
	s.submit(&op{req: &lockfn.Request{Op: lockfn.OpUnlock, Key: key, Mode: mode}, done: func(bool, uint64, error) { s.spare() }})
}

// handTo gives r, which is the front, the lock that is held.
func (g *gate) handTo(r *request) {
	h := g.hold
	if !g.l.settings.Fencing && h.session.fresh() {
		g.grant(r, 0, true)
		return
	}
	// A round trip, for a token of r's own or for proof that the session lives, which readers who have
	// come by now share.
	g.busy = true
	upTo := g.l.stamp()
	h.session.submit(&op{token: g.l.settings.Fencing, done: func(_ bool, token uint64, err error) {
		g.idle()
		if g.hold == h {
			if err == nil {
				g.grantUpTo(upTo, token, true)
			} else { // the server works, and would say so again
				g.fail(r, err)
			}
		}
		g.resume(err == nil)
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
		g.queue.remove(r)
		r.settle(err)
		return
	}
	g.busy = true
	mode, upTo := r.settings.Mode, g.l.stamp()
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
			g.advance()
		case ok:
			g.granted(s, mode, token, upTo)
		default:
			g.refused(mode, upTo)
		}
	}})
}

// granted takes note that s holds the lock now. token was drawn for requests up to that stamp:
// who has come since may know of a larger one, of a reader in another process.
func (g *gate) granted(s *session, mode advisory.Mode, token, upTo uint64) {
	g.polled = false
	g.hold = &hold{gate: g, session: s, mode: mode, since: time.Now(), users: map[*handle]struct{}{}, gone: make(chan struct{})}
	s.holds[g.key] = g.hold
	g.l.held++
	front := g.queue.front()
	switch {
	case front == nil || front.settings.Mode != mode:
		g.unlock(nil)
	case g.l.settings.Fencing && front.stamp > upTo:
		g.handTo(front)
	case front.stamp > upTo:
		g.grant(front, token, false)
	default:
		g.grantUpTo(upTo, token, false)
	}
	g.advance()
}

// refused: somebody else has the lock. That answers all tries that came before the statement.
func (g *gate) refused(mode advisory.Mode, upTo uint64) {
	g.refusedAt[mode] = upTo
	g.refuseTries(mode, upTo)
	front := g.queue.front()
	switch {
	case front == nil:
	case front.once || front.settings.Mode != mode || front.stamp > upTo:
		g.polled = false
	case !g.polled:
		g.l.waitFor(g)
	}
	g.advance()
}

// fail answers r with err.
func (g *gate) fail(r *request, err error) {
	g.polled = false
	g.queue.remove(r)
	r.settle(err)
}

// failAll answers all that wait with err: no session can be opened, and to find that out once
// for each of them could take long.
func (g *gate) failAll(err error) {
	g.polled = false
	g.queue.settle(err)
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
	front := g.queue.front()
	if front == nil || front.settings.Mode != h.mode || h.dead != nil || time.Since(h.since) >= handOverFor {
		return false
	}
	g.handTo(front)
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
