package locker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/given"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/settings"
	"github.com/pgadvisory/pgadvisory/internal/wait"
)

// TryLockAll makes one try for all of the keys, in one round trip: all or nothing. A key
// may be given twice; it is taken once. If one key is taken, TryLockAll gives the others back. Until then
// other callers may find those taken.
func (l *Locker) TryLockAll(ctx context.Context, keys []advisory.Key, opts ...advisory.LockerOption) (advisory.Locks, bool, error) {
	keys = lockfn.Sorted(keys)
	locks, missing, err := l.takeAll(allCall{ctx: ctx, limit: ctx, start: time.Now(), op: "try lock all of", opts: opts}, keys)
	if err != nil || missing < len(keys) {
		giveBack(locks)
		if s, _ := settings.Locker(opts); err == nil {
			l.setHolders(ctx, s, keys[missing], false, nil)
		}
		return nil, false, err
	}
	return locks, true, nil
}

// giveBack releases, at once, locks that are of no use alone.
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
// wait for each other. If it loses one while it waits for another, it begins again. If the wait ends
// before, it holds nothing. The wait ends as that of [Locker.Lock] does.
func (l *Locker) LockAll(ctx context.Context, keys []advisory.Key, opts ...advisory.LockerOption) (all advisory.Locks, err error) {
	const op = "lock all of"
	start := time.Now()
	keys = lockfn.Sorted(keys)
	s, err := settings.Locker(opts)
	if err == nil && ctx == nil {
		err = given.ErrNilCtx
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
	for wanted := keys; ; {
		more, missing, err := l.takeAll(allCall{ctx: ctx, limit: limit, start: start, op: op, opts: opts, waits: true}, keys)
		locks = append(locks, more[:min(missing, len(more))]...)
		// What comes behind the one that is missing is not held while it is waited for.
		giveBack(more[min(missing, len(more)):])
		if err == nil {
			keys = keys[missing:]
		}
		if err == nil && len(keys) > 0 {
			var lock advisory.Lock
			if lock, err = l.acquire(ctx, start, op, keys[0], remaining(opts, s, start), false); err == nil {
				locks, keys = append(locks, lock), keys[1:]
			}
		}
		switch {
		case err != nil:
			return nil, wait.Ended(ctx, limit, first(keys), s.Mode, start, err)
		case anyEnded(locks):
			giveBack(locks)
			locks, keys = nil, wanted
		case len(keys) == 0:
			return locks, nil
		}
	}
}

// remaining returns opts with what is left of MaxWait. That is never 0, which is one try, unless it was:
// the error of a try is that of its attempt to connect, and a wait does not end with that.
func remaining(opts []advisory.LockerOption, s settings.Call, start time.Time) []advisory.LockerOption {
	if s.MaxWait == nil || wait.OneTry(s) {
		return opts
	}
	return append(opts[:len(opts):len(opts)], advisory.MaxWait(max(*s.MaxWait-time.Since(start), 1)))
}

// anyEnded reports whether one of the locks was lost meanwhile, or the Locker was closed.
func anyEnded(locks advisory.Locks) bool {
	return slices.ContainsFunc(locks, func(l advisory.Lock) bool { return l.Context().Err() != nil })
}

func first(keys []advisory.Key) advisory.Key {
	if len(keys) == 0 {
		return advisory.Key{}
	}
	return keys[0]
}

// An allCall is a call that wants all of some keys.
type allCall struct {
	ctx, limit context.Context
	start      time.Time
	op         string
	opts       []advisory.LockerOption
	waits      bool // it waits for what is missing
}

// takeAll tries all keys at once. It returns the locks up to the first that is missing,
// in order, then those behind it; and the place of that. The Observer hears of one that is
// missing only if this is all there is to it.
func (l *Locker) takeAll(c allCall, keys []advisory.Key) (locks advisory.Locks, missing int, err error) {
	s, err := l.checkCall(c.ctx, c.opts, keys...)
	if err != nil {
		return nil, 0, lockfn.Error(c.op, first(keys), s.Mode, err)
	}
	rs, err := l.requestAll(c, keys, s)
	if len(rs) == 0 {
		err = lockfn.Error(c.op, keys[0], s.Mode, err)
		l.observeEnd(c.ctx, s, keys[0], nil, c.start, err)
		return nil, 0, err
	}
	locks, missing, err = l.awaitAll(c, keys, s, rs, err)
	return locks, missing, lockfn.Error(c.op, keys[0], s.Mode, err)
}

// requestAll has a request queue for each of the keys, as enterAll does, unless ctx's work runs under
// one of them.
func (l *Locker) requestAll(c allCall, keys []advisory.Key, s settings.Call) ([]*request, error) {
	for _, k := range keys {
		if err := notUnder(c.ctx, k); err != nil {
			return nil, err
		}
	}
	return l.enterAll(c.limit, keys, func() *request {
		return &request{ctx: c.ctx, settings: s, once: true, patient: c.waits, done: make(chan struct{})}
	})
}

// awaitAll waits for the answers to the requests that requestAll has returned with err, and reports
// them. It returns what takeAll does.
func (l *Locker) awaitAll(c allCall, keys []advisory.Key, s settings.Call, rs []*request, err error) (locks advisory.Locks, missing int, _ error) {
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
		l.awaitAnswer(c.limit, r)
		h, rerr := r.lock, r.err
		if h != nil {
			locks = append(locks, h)
		} else {
			missing = min(missing, i)
		}
		switch {
		case errors.Is(rerr, errLeft):
			if left == nil {
				left = l.left(c.ctx, r, c.start)
			}
			rerr = left
		case c.waits && (sessionEnded(rerr) || l.goesOn(rerr)):
			rerr = nil // there are other sessions, to wait on
		}
		if err == nil {
			err = rerr
		}
		if h != nil || rerr != nil || !c.waits {
			tell = append(tell, func() { l.observeEnd(c.ctx, s, keys[i], h, c.start, rerr) })
		}
	}
	for _, tell := range tell {
		tell()
	}
	told = true
	return locks, missing, err
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
		if l.refusal != nil {
			defer l.mu.Unlock()
			return rs, l.refusal
		}
		for _, k := range some {
			r := newRequest()
			rs = append(rs, r)
			l.gate(k).enqueue(r)
		}
		l.mu.Unlock()
		if len(rs) < len(keys) && limit.Err() != nil {
			return rs, bound.Cause(limit)
		}
	}
	return rs, nil
}
