package locker

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/settings"
	"github.com/pgadvisory/pgadvisory/internal/statement"
	"github.com/pgadvisory/pgadvisory/internal/under"
	"github.com/pgadvisory/pgadvisory/internal/wait"
)

// TryLockAll makes one try for all of the keys, in one round trip: all or nothing. A key
// may be given twice; it is taken once. Between its answer and its giving back what
// it got in vain, others may find those keys taken.
func (l *Locker) TryLockAll(ctx context.Context, keys []advisory.Key, opts ...advisory.LockerOption) (advisory.Locks, bool, error) {
	keys = lockfn.Sorted(keys)
	locks, missing, err := l.takeAll(ctx, ctx, time.Now(), "try lock all of", keys, opts, false)
	if err != nil || missing < len(keys) {
		giveBack(locks)
		return nil, false, err
	}
	return locks, true, nil
}

// giveBack releases, at once, locks that were taken in vain.
func giveBack(locks advisory.Locks) {
	for some := range slices.Chunk(locks, chunk) {
		l := some[0].(*handle).hold.gate.l
		l.mu.Lock() // an event of a loss may read the settings just now
		for _, h := range some {
			h.(*handle).settings.HoldAtLeast = 0
		}
		l.mu.Unlock()
	}
	locks.Unlock()
}

// LockAll waits until it has all of the keys. It takes them in one order for all callers,
// and while it waits for one it holds only such as come before: so two LockAll never
// wait for each other. If the wait ends before, it holds nothing.
func (l *Locker) LockAll(ctx context.Context, keys []advisory.Key, opts ...advisory.LockerOption) (all advisory.Locks, err error) {
	const op = "lock all of"
	start := time.Now()
	keys = lockfn.Sorted(keys)
	s, err := settings.Locker(opts)
	if err == nil && ctx == nil {
		err = errNilCtx
	}
	if err != nil {
		return nil, lockfn.Error(op, first(keys), s.Mode, err)
	}
	limit, cancel := wait.Limit(ctx, s)
	defer cancel()
	var locks advisory.Locks
	defer func() {
		if all == nil { // an error, or the Observer panicked
			giveBack(locks)
		}
	}()
	for {
		more, missing, err := l.takeAll(ctx, limit, start, op, keys, opts, true)
		locks = append(locks, more[:min(missing, len(more))]...)
		if err == nil && missing == len(keys) {
			return locks, nil
		}
		// What comes behind the one that is missing is not held while it is waited for.
		giveBack(more[min(missing, len(more)):])
		if err == nil {
			keys = keys[missing:]
			remaining := opts
			if s.MaxWait != nil {
				remaining = append(opts[:len(opts):len(opts)], advisory.MaxWait(max(*s.MaxWait-time.Since(start), 0)))
			}
			var lock advisory.Lock
			lock, err = l.acquire(ctx, start, op, keys[0], remaining, false)
			if err == nil {
				locks = append(locks, lock)
				if keys = keys[1:]; len(keys) == 0 {
					return locks, nil
				}
				continue
			}
		}
		return nil, wait.Ended(ctx, limit, first(keys), s.Mode, start, err)
	}
}

func first(keys []advisory.Key) advisory.Key {
	if len(keys) == 0 {
		return advisory.Key{}
	}
	return keys[0]
}

// takeAll tries all keys at once. It returns the locks up to the first that is missing,
// in order, then those behind it; and the place of that. The Observer hears of one that is
// missing only if this is all there is to it.
func (l *Locker) takeAll(ctx, limit context.Context, start time.Time, op string, keys []advisory.Key, opts []advisory.LockerOption, waits bool) (locks advisory.Locks, missing int, err error) {
	s, err := l.ready(ctx, opts, keys...)
	for _, k := range keys {
		if err == nil {
			err = notUnder(ctx, k)
		}
	}
	if err != nil {
		return nil, 0, lockfn.Error(op, first(keys), s.Mode, err)
	}
	rs, err := l.enterAll(limit, keys, func() *request {
		return &request{ctx: ctx, settings: s, once: true, done: make(chan struct{})}
	})
	if len(rs) == 0 {
		return nil, 0, lockfn.Error(op, keys[0], s.Mode, err)
	}
	missing = len(rs) // of which there are fewer than keys only after an error
	told := false
	defer func() {
		if !told { // the Observer panicked
			giveBack(locks)
		}
	}()
	var tell []func()
	var left error
	for i, r := range rs {
		l.answered(limit, r)
		h, rerr := r.lock, r.err
		if h != nil {
			locks = append(locks, h)
		} else {
			missing = min(missing, i)
		}
		switch {
		case errors.Is(rerr, errLeft):
			if left == nil {
				left = l.left(ctx, r, start)
			}
			rerr = left
		case waits && sessionEnded(rerr):
			rerr = nil // there are other sessions, to wait on
		}
		if err == nil {
			err = rerr
		}
		if h != nil || rerr != nil || !waits {
			tell = append(tell, func() { l.tell(ctx, s, keys[i], h, start, rerr) })
		}
	}
	for _, tell := range tell {
		tell()
	}
	told = true
	return locks, missing, lockfn.Error(op, keys[0], s.Mode, err)
}

// chunk is how many keys are looked at with the mutex held, and how many one statement tries: a
// call with more of them lets others in between, and looks at its ctx.
const chunk = 1024

// enterAll has a request queue for each of the keys. It stops when limit ends or the Locker is
// closed, and returns the requests up to there, with the error.
func (l *Locker) enterAll(limit context.Context, keys []advisory.Key, newRequest func() *request) (rs []*request, err error) {
	rs = make([]*request, 0, len(keys))
	for some := range slices.Chunk(keys, chunk) {
		l.mu.Lock()
		if l.state != nil {
			defer l.mu.Unlock()
			return rs, l.state
		}
		for _, k := range some {
			r := newRequest()
			rs = append(rs, r)
			l.gate(k).enter(r)
		}
		l.mu.Unlock()
		if len(rs) < len(keys) && limit.Err() != nil {
			return rs, bound.Cause(limit)
		}
	}
	return rs, nil
}

// TryLockAny tries the keys in the given order until one is free: in one round trip, or in one for
// each thousand keys of which none is free.
func (l *Locker) TryLockAny(ctx context.Context, keys []advisory.Key, opts ...advisory.LockerOption) (advisory.Lock, bool, error) {
	s, keys, err := l.readyAny(ctx, keys, opts)
	return l.tryLockAny(ctx, choiceOf(keys), s, err)
}

func (l *Locker) tryLockAny(ctx context.Context, c choice, s settings.Call, err error) (advisory.Lock, bool, error) {
	const op = "try lock any of"
	start := time.Now()
	if err != nil {
		return none(c.name, s.Mode), false, lockfn.Error(op, c.name, s.Mode, err)
	}
	h, err := l.tryAny(ctx, ctx, c, s, nil)
	err = lockfn.Error(op, c.name, s.Mode, err)
	l.tell(ctx, s, c.name, h, start, err)
	if h == nil {
		return none(c.name, s.Mode), false, err
	}
	return h, true, nil
}

// LockAny waits until it has one of the keys: the first that is free. If several become
// free at once it may get more than one for a moment, in which a try of another finds
// them taken.
//
// It queues for all of the keys, or, if there are more than 128, for 128 of them, chosen at random.
// The others it tries again after a tenth of a second, or after ten times as long as such a pass
// takes where that is more: so one that stays free is found within the time of some 12 passes.
func (l *Locker) LockAny(ctx context.Context, keys []advisory.Key, opts ...advisory.LockerOption) (advisory.Lock, error) {
	s, keys, err := l.readyAny(ctx, keys, opts)
	return l.lockAny(ctx, choiceOf(keys), s, err)
}

func (l *Locker) lockAny(ctx context.Context, c choice, s settings.Call, err error) (advisory.Lock, error) {
	const op = "lock any of"
	start := time.Now()
	if err != nil {
		return none(c.name, s.Mode), lockfn.Error(op, c.name, s.Mode, err)
	}
	limit, cancel := wait.Limit(ctx, s)
	defer cancel()
	h, err := l.tryAny(ctx, limit, c, s, nil)
	took := time.Since(start)
	if wait.OneTry(s) {
		if h == nil && err == nil {
			err = l.notAcquired(ctx, c.name, s.Mode, start)
		}
	} else if h == nil && (err == nil || sessionEnded(err)) { // there are other sessions
		h, err = l.waitAny(ctx, limit, c, s, start, took)
	}
	err = lockfn.Error(op, c.name, s.Mode, wait.Ended(ctx, limit, c.name, s.Mode, start, err))
	l.tell(ctx, s, c.name, h, start, err)
	if h == nil {
		return none(c.name, s.Mode), err
	}
	return h, nil
}

// readyAny leaves out the keys under whose locks ctx's work runs.
func (l *Locker) readyAny(ctx context.Context, keys []advisory.Key, opts []advisory.LockerOption) (settings.Call, []advisory.Key, error) {
	s, err := l.ready(ctx, opts, keys...)
	if err != nil {
		return s, keys, err
	}
	others := slices.DeleteFunc(slices.Clone(keys), func(k advisory.Key) bool { return under.Holds(ctx, k) })
	if len(others) == 0 {
		return s, keys, notUnder(context.WithoutCancel(ctx), keys[0])
	}
	return s, others, nil
}

// tryAny takes the first key of c that is free, or none: then each of them was refused. It asks for
// a first few of them and then for more, a chunk at a time.
func (l *Locker) tryAny(ctx, limit context.Context, c choice, s settings.Call, cl *claim) (*handle, error) {
	if ctx.Err() != nil {
		return nil, bound.Cause(ctx)
	}
	t := anyTry{l: l, ctx: ctx, limit: limit, settings: s, claim: cl, start: time.Now()}
	l.mu.Lock()
	t.stamp = l.stamp()
	l.mu.Unlock()
	defer func() { l.unwatch(t.open) }()
	asked, candidates, size := false, false, c.first
	var change <-chan struct{}
	for from := 0; from < c.n; size = min(4*size, chunk) {
		keys := make([]advisory.Key, 0, min(size, c.n-from))
		for ; from < c.n && len(keys) < size; from++ {
			if k := c.at(from); !under.Holds(ctx, k) {
				keys = append(keys, k)
			}
		}
		candidates = candidates || len(keys) > 0
		a, ch, h, err := t.try(keys)
		if h != nil || err != nil {
			return h, err
		}
		asked = asked || a != nil
		if change == nil {
			change = ch
		}
	}
	if !candidates {
		return nil, notUnder(context.WithoutCancel(ctx), c.at(0))
	}
	for len(t.open) > 0 { // statements about these were under way
		if !asked {
			select {
			case <-change:
			case <-limit.Done():
				return nil, bound.Cause(limit)
			}
		}
		open := t.open
		t.open = nil
		asked, change = false, nil
		for len(open) > 0 {
			some := open[:min(len(open), chunk)]
			open = open[len(some):]
			keys := make([]advisory.Key, len(some))
			for i, g := range some {
				keys[i] = g.key
			}
			a, ch, h, err := t.try(keys)
			l.unwatch(some) // which are watched again if need be
			if h != nil || err != nil {
				l.unwatch(open)
				return h, err
			}
			asked = asked || a != nil
			if change == nil {
				change = ch
			}
		}
	}
	return nil, nil
}

// An anyTry is one call's try of any of some keys.
type anyTry struct {
	l          *Locker
	ctx, limit context.Context
	settings   settings.Call
	claim      *claim
	start      time.Time
	stamp      uint64
	ended      int // sessions that ended before they answered
	// open are the gates of keys that are not decided: a statement of somebody else was under way.
	open []*gate
	// rest are the keys behind one whose lock the last request was to share: if that is lost
	// before it has it, these are to be asked for.
	rest []advisory.Key
}

// unwatch lets the gates go that a call has watched.
func (l *Locker) unwatch(gates []*gate) {
	for some := range slices.Chunk(gates, chunk) {
		l.mu.Lock()
		for _, g := range some {
			g.watched--
			g.advance()
		}
		l.mu.Unlock()
	}
}

func (t *anyTry) watch(g *gate) {
	g.watched++
	t.open = append(t.open, g)
}

// try asks for the first of the keys that is free, on another session if one ends, and waits for the
// answer. change is as of ask.
func (t *anyTry) try(keys []advisory.Key) (r *request, change <-chan struct{}, h *handle, err error) {
	for {
		r, change, err = t.ask(keys)
		h, err = t.outcome(r, err)
		if h == nil && err == nil && len(t.rest) > 0 && t.limit.Err() == nil {
			keys = t.rest
			continue
		}
		if h != nil || !retriable(err) {
			return r, change, h, unheld(err)
		}
		if t.ended++; t.ended >= maxEnded {
			return r, change, h, unheld(err)
		}
	}
}

// outcome waits for the answer to r, which ask returned.
func (t *anyTry) outcome(r *request, err error) (*handle, error) {
	if err != nil {
		return nil, err
	}
	if r == nil {
		if t.limit.Err() != nil {
			return nil, bound.Cause(t.limit)
		}
		return nil, nil
	}
	if t.claim != nil { // whose caller knows what became of it
		t.l.answered(t.limit, r)
		return r.lock, r.err
	}
	return t.l.await(t.ctx, t.limit, r, t.start)
}

// ask asks for the first of the keys that is free as far as this process knows; nil if there is
// none such. Those that it cannot decide now it watches; they may be after the next change.
func (t *anyTry) ask(keys []advisory.Key) (r *request, change <-chan struct{}, err error) {
	l := t.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != nil {
		return nil, nil, l.state
	}
	change = l.watch()
	mode := t.settings.Mode
	r = &request{ctx: t.ctx, settings: t.settings, once: true, claim: t.claim, done: make(chan struct{})}
	free := make([]*gate, 0, len(keys))
	t.rest = nil
	for i, k := range keys {
		g := l.gate(k)
		conflicts := g.queue.conflicts(mode)
		switch {
		case g.refusedAt[mode] > t.stamp: // while this call waited for that statement
			g.advance()
		case g.hold != nil && g.hold.fits(r) && !g.queue.conflictsUpTo(mode, t.stamp):
			if len(free) > 0 {
				t.watch(g) // if those before it are not free
				break
			}
			t.rest = keys[i+1:]
			g.join(r, t.stamp)
			return r, change, nil
		case g.busy || g.asking:
			t.watch(g)
		case g.hold != nil && !conflicts && !excludes(g.hold.mode, mode): // a writer waited for it, as of the last ping
			t.watch(g)
			g.askWhetherWanted()
		case g.hold != nil:
		case g.waiter != nil && conflicts:
		case g.waiter != nil && g.waiter.waitsAs(g) && !g.waiter.hurried: // for readers, as this one is
			t.watch(g)
			g.askBeside(mode)
		case g.waiter != nil: // for nobody any more
			t.watch(g)
			g.waiter.hurry()
		default:
			g.busy = true // so that a key that is given twice is asked for once
			free = append(free, g)
		}
	}
	if len(free) == 0 {
		return nil, change, nil
	}
	return r, change, t.submit(r, free)
}

// submit has the server take, for r, the first of the gates' keys that is free. The mutex is held.
func (t *anyTry) submit(r *request, gates []*gate) error {
	l := t.l
	r.gate = gates[0]
	session, err := l.frontSession()
	if err != nil {
		for _, g := range gates {
			g.idle()
			g.advance()
		}
		return err
	}
	mode, upTo := r.settings.Mode, l.stamp()
	keys := make([]advisory.Key, len(gates))
	for i, g := range gates {
		keys[i] = g.key
	}
	var won int64
	var token uint64
	session.submit(&op{
		tries: 1,
		query: func(ctx context.Context, conn *sql.Conn) (err error) {
			won, err = statement.Session{Ctx: ctx, On: conn}.Exec(lockfn.TryAny(keys, mode))
			if err == nil && won > 0 && l.settings.Fencing {
				token, err = session.drawToken()
			}
			return err
		},
		done: func(_ bool, _ uint64, err error) {
			for _, g := range gates {
				g.idle()
			}
			if l.state != nil {
				r.settle(l.state) // closed meanwhile: what was won is given back
			}
			if err == nil {
				t.answer(r, gates, won, session, token, upTo)
			}
			r.settle(err)
			for _, g := range gates {
				g.advance()
			}
		},
	})
	return nil
}

// answer gives what session has won to r, or to whom it is due. Keys behind that one were not
// tried. The mutex is held.
func (t *anyTry) answer(r *request, gates []*gate, won int64, session *session, token, upTo uint64) {
	mode := r.settings.Mode
	refused := gates
	if won > 0 {
		refused = gates[:won-1]
	}
	for _, g := range refused {
		g.refusedAt[mode] = upTo
	}
	if won == 0 {
		return
	}
	g := gates[won-1]
	if g.queue.conflictsUpTo(mode, t.stamp) { // somebody came before, who waits for that key
		for _, g := range gates[won:] {
			if r.live() {
				t.watch(g)
			}
		}
	} else {
		r.gate, r.stamp = g, upTo
		g.queue.pushFront(r)
	}
	g.granted(session, mode, token, upTo)
}

// waitAny waits in the queues of the keys at once, or of some of them, and tries the others now and
// then. took is how long a pass over all of them takes.
func (l *Locker) waitAny(ctx, limit context.Context, c choice, s settings.Call, start time.Time, took time.Duration) (*handle, error) {
	cl := &claim{}
	cl.ctx, cl.cancel = context.WithCancel(limit)
	defer cl.cancel()
	rs, err := l.enterAll(limit, c.queues(ctx), func() *request {
		return &request{ctx: ctx, settings: s, claim: cl, done: make(chan struct{})}
	})
	stop := wait.Long(ctx, l.observer(s), c.name, s, start)
	for err == nil && cl.ctx.Err() == nil {
		var again <-chan time.Time
		var timer *time.Timer
		if c.n > maxQueues {
			timer = time.NewTimer(max(retryAny, 10*took))
			again = timer.C
		}
		select {
		case <-cl.ctx.Done():
		case <-again:
			pass := time.Now()
			// What it wins it wins for the claim. If it fails the queues, too, say why.
			l.tryAny(ctx, cl.ctx, c, s, cl)
			took = time.Since(pass)
		}
		if timer != nil {
			timer.Stop()
		}
	}
	stop()
	l.mu.Lock()
	cl.end(&request{err: errLeft}) // nobody wins from now on
	for _, r := range rs {
		if !r.settled {
			r.settle(errLeft)
			r.gate.leave(r)
		}
	}
	h, won := cl.won.lock, cl.won.err
	l.mu.Unlock()
	if errors.Is(won, errLeft) {
		if err == nil || limit.Err() != nil {
			err = l.notAcquired(ctx, c.name, s.Mode, start)
		}
		return h, err
	}
	return h, won
}
