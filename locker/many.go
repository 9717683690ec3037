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
	"github.com/pgadvisory/pgadvisory/internal/wait"
)

// TryLockAll makes one try for all of the keys, in one round trip: all or nothing. A key
// may be given twice; it is taken once. Between its answer and its giving back what
// it got in vain, others may find those keys taken.
func (l *Locker) TryLockAll(ctx context.Context, keys []advisory.Key, opts ...advisory.SessionOption) (advisory.Locks, bool, error) {
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
	for _, l := range locks {
		h := l.(*handle)
		h.hold.gate.l.mu.Lock() // a loss may be told of just now
		h.settings.HoldAtLeast = 0
		h.hold.gate.l.mu.Unlock()
	}
	locks.Unlock()
}

// LockAll waits until it has all of the keys. It takes them in one order for all callers,
// and while it waits for one it holds only such as come before: so two LockAll never
// wait for each other. If the wait ends before, it holds nothing.
func (l *Locker) LockAll(ctx context.Context, keys []advisory.Key, opts ...advisory.SessionOption) (all advisory.Locks, err error) {
	const op = "lock all of"
	start := time.Now()
	keys = lockfn.Sorted(keys)
	s, err := advisory.SessionSettings(opts...)
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
func (l *Locker) takeAll(ctx, limit context.Context, start time.Time, op string, keys []advisory.Key, opts []advisory.SessionOption, waits bool) (locks advisory.Locks, missing int, err error) {
	s, err := l.ready(ctx, opts, keys...)
	for _, k := range keys {
		if err == nil {
			err = notUnder(ctx, k)
		}
	}
	if err != nil {
		return nil, 0, lockfn.Error(op, first(keys), s.Mode, err)
	}
	rs := make([]*request, len(keys))
	l.mu.Lock()
	if l.state != nil {
		l.mu.Unlock()
		return nil, 0, lockfn.Error(op, keys[0], s.Mode, l.state)
	}
	for i, k := range keys {
		rs[i] = &request{ctx: ctx, settings: s, once: true, done: make(chan struct{})}
		l.gate(k).enter(rs[i])
	}
	l.mu.Unlock()
	missing = len(keys)
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

// TryLockAny tries the keys in the given order until one is free, in one round trip.
func (l *Locker) TryLockAny(ctx context.Context, keys []advisory.Key, opts ...advisory.SessionOption) (advisory.Lock, bool, error) {
	const op = "try lock any of"
	start := time.Now()
	s, keys, err := l.readyAny(ctx, keys, opts)
	if err != nil {
		return none(first(keys), s.Mode), false, lockfn.Error(op, first(keys), s.Mode, err)
	}
	h, err := l.tryAny(ctx, ctx, keys, s)
	err = lockfn.Error(op, keys[0], s.Mode, err)
	l.tell(ctx, s, keys[0], h, start, err)
	if h == nil {
		return none(keys[0], s.Mode), false, err
	}
	return h, true, nil
}

// LockAny waits until it has one of the keys: the first that is free. If several become
// free at once it may get more than one for a moment, in which a try of another finds
// them taken.
func (l *Locker) LockAny(ctx context.Context, keys []advisory.Key, opts ...advisory.SessionOption) (advisory.Lock, error) {
	const op = "lock any of"
	start := time.Now()
	s, keys, err := l.readyAny(ctx, keys, opts)
	if err != nil {
		return none(first(keys), s.Mode), lockfn.Error(op, first(keys), s.Mode, err)
	}
	limit, cancel := wait.Limit(ctx, s)
	defer cancel()
	h, err := l.tryAny(ctx, limit, keys, s)
	if wait.OneTry(s) {
		if h == nil && err == nil {
			err = l.notAcquired(ctx, keys[0], s.Mode, start)
		}
	} else if h == nil && (err == nil || sessionEnded(err)) { // there are other sessions
		h, err = l.waitAny(ctx, limit, keys, s, start)
	}
	err = lockfn.Error(op, keys[0], s.Mode, wait.Ended(ctx, limit, keys[0], s.Mode, start, err))
	l.tell(ctx, s, keys[0], h, start, err)
	if h == nil {
		return none(keys[0], s.Mode), err
	}
	return h, nil
}

// readyAny leaves out the keys under whose locks ctx's work runs.
func (l *Locker) readyAny(ctx context.Context, keys []advisory.Key, opts []advisory.SessionOption) (advisory.Settings, []advisory.Key, error) {
	s, err := l.ready(ctx, opts, keys...)
	if err != nil {
		return s, keys, err
	}
	others := slices.DeleteFunc(slices.Clone(keys), func(k advisory.Key) bool { return advisory.Under(ctx, k) })
	if len(others) == 0 {
		return s, keys, notUnder(context.WithoutCancel(ctx), keys[0])
	}
	return s, others, nil
}

// tryAny takes the first key that is free, or none.
func (l *Locker) tryAny(ctx, limit context.Context, keys []advisory.Key, s advisory.Settings) (*handle, error) {
	start := time.Now()
	if ctx.Err() != nil {
		return nil, bound.Cause(ctx)
	}
	ended := 1
	for {
		r, again, err := l.askAny(ctx, limit, keys, s)
		if err != nil || r == nil && !again {
			return nil, err
		}
		if r != nil {
			h, err := l.await(ctx, limit, r, start)
			if h == nil && (err == nil && again || ended < maxEnded && retriable(err)) {
				if err != nil {
					ended++
				}
				continue
			}
			return h, unheld(err)
		}
	}
}

// askAny asks for the first key that is free as far as this process knows; nil if there
// is none such. again: it should be asked once more if that is of no avail, since
// statements about others of the keys were under way; it has waited for one if there
// was nothing to ask for.
func (l *Locker) askAny(ctx, limit context.Context, keys []advisory.Key, s advisory.Settings) (r *request, again bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != nil {
		return nil, false, l.state
	}
	r = &request{ctx: ctx, settings: s, once: true, done: make(chan struct{})}
	var free []*gate
	for _, k := range keys {
		g := l.gate(k)
		switch {
		case g.busy:
			again = true
		case len(g.queue) > 0:
		case g.hold != nil && g.hold.fits(r):
			if len(free) > 0 {
				again = true // if those before it are not
				break
			}
			g.enter(r)
			return r, again, nil
		case g.hold != nil || slices.Contains(free, g):
		case g.waiter != nil: // for nobody any more
			g.waiter.hurry()
			again = true
		default:
			g.polled = false // likewise
			free = append(free, g)
		}
	}
	if len(free) > 0 {
		return r, again, l.submitAny(r, free)
	}
	if !again {
		return nil, false, nil
	}
	change := l.watch()
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-change:
		return nil, true, nil
	case <-limit.Done():
		return nil, false, bound.Cause(limit)
	}
}

// submitAny has the server take, for r, the first of the gates' keys that is free. The
// mutex is held.
func (l *Locker) submitAny(r *request, gates []*gate) error {
	r.gate = gates[0]
	session, err := l.frontSession()
	if err != nil {
		for _, g := range gates {
			g.advance()
		}
		return err
	}
	keys := make([]advisory.Key, len(gates))
	for i, g := range gates {
		keys[i], g.busy = g.key, true
	}
	var won int64
	var token uint64
	session.submit(&op{
		tries: 1,
		query: func(ctx context.Context, conn *sql.Conn) (err error) {
			won, err = bound.Session{Ctx: ctx, On: conn}.Exec(lockfn.TryAny(keys, r.settings.Mode))
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
			if err == nil && won > 0 {
				r.gate = gates[won-1]
				r.gate.queue = slices.Insert(r.gate.queue, 0, r)
				r.gate.granted(session, r.settings.Mode, token, r)
			}
			r.settle(err)
			for _, g := range gates {
				g.advance()
			}
		},
	})
	return nil
}

// waitAny waits in the queues of all of the keys at once.
func (l *Locker) waitAny(ctx, limit context.Context, keys []advisory.Key, s advisory.Settings, start time.Time) (*handle, error) {
	c := &claim{done: make(chan struct{})}
	keys = lockfn.Sorted(keys)
	var rs []*request
	l.mu.Lock()
	if l.state != nil {
		l.mu.Unlock()
		return nil, l.state
	}
	for _, k := range keys {
		r := &request{ctx: ctx, settings: s, claim: c, done: make(chan struct{})}
		rs = append(rs, r)
		l.gate(k).enter(r)
	}
	l.mu.Unlock()
	stop := wait.Long(ctx, l.observer(s), keys[0], s, start)
	select {
	case <-c.done:
	case <-limit.Done():
	}
	stop()
	l.mu.Lock()
	c.end(&request{err: errLeft}) // nobody wins from now on
	for _, r := range rs {
		if !r.settled {
			r.settle(errLeft)
			r.gate.leave(r)
		}
	}
	l.mu.Unlock()
	h, err := c.won.lock, c.won.err
	if errors.Is(err, errLeft) {
		err = l.notAcquired(ctx, keys[0], s.Mode, start)
	}
	return h, err
}
