package locker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/settings"
	"github.com/pgadvisory/pgadvisory/internal/under"
	"github.com/pgadvisory/pgadvisory/internal/wait"
)

// TryLockAny tries the keys in the given order until one is free: in one round trip, or in one for
// each thousand keys of which none is free.
func (l *Locker) TryLockAny(ctx context.Context, keys []advisory.Key, opts ...advisory.LockerOption) (advisory.Lock, bool, error) {
	s, keys, err := l.readyAny(ctx, keys, opts)
	return l.tryLockAny(ctx, "try lock any of", choiceOf(keys), s, err)
}

func (l *Locker) tryLockAny(ctx context.Context, op string, c choice, s settings.Call, err error) (advisory.Lock, bool, error) {
	start := time.Now()
	if err != nil {
		return noLock(c.name, s.Mode), false, lockfn.Error(op, c.name, s.Mode, err)
	}
	h, err := l.tryAny(ctx, ctx, c, s, nil, false)
	l.setHolders(ctx, s, c.at(0), h != nil, err)
	err = lockfn.Error(op, c.name, s.Mode, err)
	l.observeEnd(ctx, s, c.name, h, start, err)
	if h == nil {
		return noLock(c.name, s.Mode), false, err
	}
	return h, true, nil
}

// LockAny waits until it has one of the keys: the first that is free. If several become
// free at once it may get more than one for a moment, in which a try of another finds
// them taken. The wait ends as that of [Locker.Lock] does.
//
// It queues for all of the keys, or, if there are more than 128, for 128 of them, chosen at random.
// The others it tries again after a tenth of a second, or after ten times as long as such a pass
// takes where that is more: so one that stays free is found within the time of some 12 passes. The
// pause is at most a second for each thousand keys, however slow the link is for a while.
func (l *Locker) LockAny(ctx context.Context, keys []advisory.Key, opts ...advisory.LockerOption) (advisory.Lock, error) {
	s, keys, err := l.readyAny(ctx, keys, opts)
	return l.lockAny(ctx, "lock any of", choiceOf(keys), s, err)
}

func (l *Locker) lockAny(ctx context.Context, op string, c choice, s settings.Call, err error) (advisory.Lock, error) {
	start := time.Now()
	if err != nil {
		return noLock(c.name, s.Mode), lockfn.Error(op, c.name, s.Mode, err)
	}
	limit, cancel := wait.Limit(ctx, s)
	defer cancel()
	h, err := l.tryOrWaitAny(ctx, limit, c, s, start)
	err = lockfn.Error(op, c.name, s.Mode, wait.Ended(ctx, limit, c.name, s.Mode, start, err))
	l.observeEnd(ctx, s, c.name, h, start, err)
	if h == nil {
		return noLock(c.name, s.Mode), err
	}
	return h, nil
}

// tryOrWaitAny tries the keys once and then waits for them, if it may. While no session can be opened
// it waits for that first: to queue for keys that are free would take several of them.
func (l *Locker) tryOrWaitAny(ctx, limit context.Context, c choice, s settings.Call, start time.Time) (h *handle, err error) {
	if wait.OneTry(s) {
		if h, err = l.tryAny(ctx, limit, c, s, nil, false); h == nil && err == nil {
			err = l.noneAcquired(ctx, c, s.Mode, start)
		}
		return h, err
	}
	defer l.reportLong(ctx, c.name, c.at(0), s, start)()
	for {
		if err = l.awaitSession(limit); err != nil {
			break
		}
		began := time.Now()
		h, err = l.tryAny(ctx, limit, c, s, nil, true)
		if h == nil && (err == nil || sessionEnded(err)) { // there are other sessions
			return l.waitAny(ctx, limit, c, s, start, time.Since(began))
		}
		if !l.goesOn(err) {
			break
		}
	}
	if errors.Is(err, errLeft) {
		err = l.noneAcquired(ctx, c, s.Mode, start)
	}
	return h, err
}

// readyAny leaves out the keys under whose locks ctx's work runs.
func (l *Locker) readyAny(ctx context.Context, keys []advisory.Key, opts []advisory.LockerOption) (settings.Call, []advisory.Key, error) {
	s, err := l.checkCall(ctx, opts, keys...)
	if err != nil {
		return s, keys, err
	}
	others := slices.DeleteFunc(slices.Clone(keys), func(k advisory.Key) bool { return under.Holds(ctx, k) })
	if len(others) == 0 {
		return s, keys, notUnder(context.WithoutCancel(ctx), keys[0])
	}
	return s, others, nil
}

// tryAny takes the first key of c that is free, or none: then each of them was refused. A patient
// caller waits afterwards, and makes no attempt to connect during a pause.
func (l *Locker) tryAny(ctx, limit context.Context, c choice, s settings.Call, cl *claim, patient bool) (*handle, error) {
	if ctx.Err() != nil {
		return nil, bound.Cause(ctx)
	}
	t := anyTry{l: l, ctx: ctx, limit: limit, settings: s, claim: cl, patient: patient, start: time.Now()}
	l.mu.Lock()
	t.stamp = l.stamp()
	l.mu.Unlock()
	defer func() { l.unwatch(t.open) }()
	h, err := t.tryEach(c)
	for h == nil && err == nil && len(t.open) > 0 {
		h, err = t.tryOpen()
	}
	return h, err
}

// waitAny waits in the queues of the keys at once, or of some of them, and tries the others now and
// then. took is how long a pass over all of them takes.
func (l *Locker) waitAny(ctx, limit context.Context, c choice, s settings.Call, start time.Time, took time.Duration) (*handle, error) {
	var before time.Duration // took the pass before that: one that is slow by chance does not count
	cl := &claim{}
	cl.ctx, cl.cancel = context.WithCancel(limit)
	defer cl.cancel()
	rs, err := l.enterAll(limit, c.queues(ctx), func() *request {
		return &request{ctx: ctx, settings: s, claim: cl, done: make(chan struct{})}
	})
	for err == nil && cl.ctx.Err() == nil {
		var again <-chan time.Time
		var timer *time.Timer
		if c.n > maxQueues {
			timer = time.NewTimer(c.pause(min(before, took)))
			again = timer.C
		}
		select {
		case <-cl.ctx.Done():
		case <-again:
			pass := time.Now()
			// What it wins it wins for the claim. If it fails the queues, too, say why.
			if _, failed := l.tryAny(ctx, cl.ctx, c, s, cl, true); failed == nil {
				before, took = took, time.Since(pass)
			}
		}
		if timer != nil {
			timer.Stop()
		}
	}
	l.mu.Lock()
	cl.end(&request{err: errLeft}) // nobody wins from now on
	for _, r := range rs {
		if !r.answered {
			r.answer(errLeft)
			r.gate.dequeue(r)
		}
	}
	h, won := cl.won.lock, cl.won.err
	l.mu.Unlock()
	if errors.Is(won, errLeft) {
		if err == nil || limit.Err() != nil {
			err = l.noneAcquired(ctx, c, s.Mode, start)
		}
		return h, err
	}
	return h, won
}
