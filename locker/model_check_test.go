package locker_test

import (
	"errors"
	"slices"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
)

// checkTurn checks that no call of the process waits that came before and excludes the lock.
func (b *book) checkTurn(h *held) {
	for _, o := range b.calls {
		waits := o.queuesAtOnce() && o.limit > 0 && o.end == 0 && b.at() < o.beganAt+o.limit
		if waits && o.inTheWayOf(h.call, h.key) && o.beganAt < h.call.beganAt {
			b.fail("turn", "key %s: %s (%v) passes %s (%v), which waits since %v", h.key, h.call.name, h.mode, o.name, o.mode, o.beganAt)
		}
	}
}

// checkToken checks that a token is above those of which its caller may know, and of locks that
// excluded it.
func (b *book) checkToken(h *held) {
	if !b.fencing {
		return
	}
	token := h.lock.Token()
	if b.tokens[h.key] == nil {
		b.tokens[h.key] = map[uint64]bool{}
	}
	if b.tokens[h.key][token] {
		b.fail("token", "key %s: token %d is another's", h.key, token)
	}
	b.tokens[h.key][token] = true
	killed, was := b.process[h.call.process].killed[h.key]
	if h.lock.Context().Err() != nil || was && killed >= h.call.beganAt {
		return // lost meanwhile
	}
	for _, o := range b.holds[h.key] {
		before := o.returned < h.call.begin || h.mode == advisory.Exclusive || o.call.mode == advisory.Exclusive
		if before && o.lock.Token() >= token {
			b.fail("token", "key %s: %s has token %d, and %s had %d", h.key, h.call.name, token, o.call.name, o.lock.Token())
		}
	}
}

// checkError checks that an error is one of those that are documented.
func (b *book) checkError(c *call, err error) {
	if err == nil {
		return
	}
	waited := c.endedAt - c.beganAt
	faulty := b.faulty(c.beganAt, c.endedAt, false)
	switch {
	case errors.Is(err, advisory.ErrLost), errors.Is(err, advisory.ErrNotHeld), errors.Is(err, advisory.ErrAlreadyHeld):
		b.fail("error", "%s: %v", c.name, err)
	case errors.Is(err, advisory.ErrNotAcquired):
		if c.try {
			b.fail("error", "%s: %v", c.name, err)
		} else if c.limit > 0 && waited < c.limit && c.ctx.Err() == nil {
			b.fail("error", "%s ends after %v of %v: %v", c.name, waited, c.limit, err)
		}
	case errors.Is(err, advisory.ErrClosed):
		if !b.process[c.process].closing {
			b.fail("error", "%s: %v", c.name, err)
		}
	case c.ctx.Err() != nil && errors.Is(err, c.ctx.Err()):
	case !faulty:
		b.fail("error", "%s, without a fault: %v", c.name, err)
	case c.limit > 0 && !c.try && !b.lasting(c.beganAt, c.endedAt):
		b.fail("error", "%s, which waits: %v", c.name, err)
	}
}

// lasting reports whether there was a fault in that time that may end calls that wait.
func (b *book) lasting(from, to time.Duration) bool {
	return slices.ContainsFunc(b.faults, func(f fault) bool { return f.lasting && f.from <= to && f.to+f.effect >= from })
}

// checkRefusal checks that a try was refused for a reason: during the call the server would have
// refused it, or a call of the process that excludes it came before.
func (b *book) checkRefusal(c *call) {
	for _, key := range c.keys {
		reason := b.refuses(c, key)
		if reason && c.all {
			return
		}
		if !reason && !c.all {
			b.fail("refusal", "%s (%v): key %s was free", c.name, c.mode, key)
			return
		}
	}
	if c.all {
		b.fail("refusal", "%s (%v): keys %v were free", c.name, c.mode, c.keys)
	}
}

func (b *book) refuses(c *call, key string) bool {
	pages := b.pages[key]
	for i, p := range pages {
		if (i == len(pages)-1 || pages[i+1].entry > c.begin) && p.excludes(c.mode) {
			return true
		}
	}
	if killed, was := b.process[c.process].killed[key]; was && c.beganAt-killed <= noticed {
		return true // the process does not know yet that it has it no more
	}
	until := c.beganAt
	if len(c.keys) > 1 && !c.all {
		until = c.endedAt // it asks again
	}
	for _, o := range b.calls {
		if o.inTheWayOf(c, key) && o.beganAt <= until && (o.end == 0 || o.end > c.begin) {
			return true
		}
	}
	return false
}

func (o *call) inTheWayOf(c *call, key string) bool {
	return o != c && o.process == c.process && slices.Contains(o.keys, key) &&
		(o.mode == advisory.Exclusive || c.mode == advisory.Exclusive)
}

// patience is within which time a call has a key that is free: some statements of others come first.
func (b *book) patience() time.Duration { return time.Second + 25*b.slowness }

// checkWait checks that a call did not wait for longer while its key was free, and no other
// call came before it.
func (b *book) checkWait(c *call, got bool) {
	if c.all && len(c.keys) > 1 || c.endedAt-c.beganAt <= b.patience() || b.process[c.process].closing {
		return // LockAll waits for one key after another
	}
	for _, key := range c.keys {
		var taken []span
		pages := b.pages[key]
		for i, p := range pages {
			if p.occupied(c.mode, c.process) {
				s := span{p.at, c.endedAt}
				if i < len(pages)-1 {
					s.to = pages[i+1].at
				}
				taken = append(taken, s)
			}
		}
		for _, o := range b.calls {
			if o.inTheWayOf(c, key) && o.beganAt <= b.queuedBy(c) {
				s := span{o.beganAt, c.endedAt}
				if o.end != 0 {
					s.to = o.endedAt
				}
				taken = append(taken, s)
			}
		}
		for _, f := range b.faults {
			taken = append(taken, span{f.from, f.to + f.effect})
		}
		if gap := longestGap(taken, span{c.beganAt, c.endedAt}); gap > b.patience() {
			b.fail("wait", "%s (%v): key %s was free for %v, got: %v", c.name, c.mode, key, gap, got)
		}
	}
}

// queuesAtOnce reports whether a call queues as it begins. Others try first, and queue later.
func (c *call) queuesAtOnce() bool { return c.try || c.name == "Lock" || c.name == "Do" }

// queuedBy returns when a call has queued, at the latest: whoever comes before that may be before it.
// LockAny, say, tries first, and while no session can be opened it waits for that before it tries. A
// writer who queues meanwhile, and waits for readers of the same process, is in its way though it came
// later.
func (b *book) queuedBy(c *call) time.Duration {
	if c.queuesAtOnce() {
		return c.beganAt
	}
	outage := c.beganAt
	for _, f := range b.faults { // in the order in which they began
		if f.from <= outage {
			outage = max(outage, f.to+f.effect)
		}
	}
	return outage + b.patience()
}

type span struct{ from, to time.Duration }

// longestGap returns the longest part of within that no span covers.
func longestGap(spans []span, within span) (gap time.Duration) {
	slices.SortFunc(spans, func(a, b span) int { return int(a.from - b.from) })
	at := within.from
	for _, s := range spans {
		gap = max(gap, min(s.from, within.to)-at)
		at = max(at, s.to)
	}
	return max(gap, within.to-at)
}

// checkDuration checks that a call ends in time.
func (b *book) checkDuration(c *call) {
	most := max(c.limit, 0) + bound.Grace + 25*b.slowness // it asks who holds the key, or opens a session
	switch {
	case b.faulty(c.beganAt, c.endedAt, false):
		most += time.Minute
	case len(c.keys) > 1, c.try, c.limit == 0:
		most += 25 * b.slowness // what it gives back, and the statements before its own
	}
	if took := c.endedAt - c.beganAt; took > most {
		b.fail("duration", "%s with limit %v took %v", c.name, c.limit, took)
	}
}
