package memlock

import (
	"context"
	"slices"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/settings"
)

// A line is what there is about one key: who holds it, and who waits for it, first
// come first served. All of it is guarded by the Locker's mutex.
type line struct {
	l     *Locker
	key   advisory.Key
	holds []*hold
	queue []*waiter
}

// A waiter is a call that waits.
type waiter struct {
	ctx      context.Context
	settings settings.Call
	done     chan struct{}

	// From done on.
	hold  *hold
	local bool
	err   error
}

func (w *waiter) settle(err error) {
	w.err = err
	close(w.done)
}

// line returns the line of key. The mutex is held.
func (l *Locker) line(key advisory.Key) *line {
	n := l.lines[key]
	if n == nil {
		if l.lines == nil {
			l.lines = map[advisory.Key]*line{}
		}
		n = &line{l: l, key: key}
		l.lines[key] = n
	}
	return n
}

func excludes(a, b advisory.Mode) bool { return a == advisory.Exclusive || b == advisory.Exclusive }

// enter grants w, or has it wait. A try that would wait is refused.
func (n *line) enter(w *waiter, try bool) (granted bool) {
	if len(n.queue) == 0 && n.free(w.settings.Mode) {
		n.grant(w, n.oursAmong())
		return true
	}
	if !try {
		n.queue = append(n.queue, w)
	}
	return false
}

// leave takes w out of the queue, whose caller does not wait any more. It is false if w
// has been answered already.
func (n *line) leave(w *waiter) bool {
	i := slices.Index(n.queue, w)
	if i < 0 {
		return false
	}
	n.queue = slices.Delete(n.queue, i, i+1)
	n.advance(n.oursAmong())
	return true
}

// free reports whether the holders let one of this mode in.
func (n *line) free(m advisory.Mode) bool {
	return !slices.ContainsFunc(n.holds, func(h *hold) bool { return excludes(h.mode, m) })
}

func (n *line) oursAmong() bool {
	return slices.ContainsFunc(n.holds, func(h *hold) bool { return !h.other })
}

func (n *line) grant(w *waiter, local bool) {
	h := &hold{line: n, key: n.key, mode: w.settings.Mode, since: time.Now(), settings: w.settings, pid: n.l.pid()}
	if !n.l.NoTokens {
		n.l.token++
		h.token = n.l.token
	}
	h.ctx, h.cancel = context.WithCancelCause(context.WithoutCancel(w.ctx))
	n.holds = append(n.holds, h)
	w.hold, w.local = h, local
	w.settle(nil)
}

// remove takes h from the holders. It reports whether the key stays with this Locker,
// by another of its callers.
func (n *line) remove(h *hold) (stays bool) {
	i := slices.Index(n.holds, h)
	if i < 0 {
		return false
	}
	n.holds = slices.Delete(n.holds, i, i+1)
	n.advance(!h.other)
	return n.oursAmong()
}

// advance lets in the front of the queue, as many as may be. local: the key comes from
// a caller of this Locker.
func (n *line) advance(local bool) {
	for len(n.queue) > 0 && n.free(n.queue[0].settings.Mode) {
		w := n.queue[0]
		n.queue = n.queue[1:]
		n.grant(w, local)
		local = true
	}
	if len(n.queue) == 0 && len(n.holds) == 0 {
		delete(n.l.lines, n.key)
	}
}

// holders is what a NotAcquiredError shows.
func (n *line) holders() (hs []advisory.Holder) {
	for _, h := range n.holds {
		shown := advisory.Holder{PID: h.pid, Mode: h.mode, Since: h.since}
		if h.other {
			shown.Application = h.settings.Label
		} else {
			shown.Local, shown.Label = true, h.settings.Label
		}
		hs = append(hs, shown)
	}
	return hs
}
