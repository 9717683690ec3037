package locker

import (
	"context"
	"database/sql"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/settings"
	"github.com/pgadvisory/pgadvisory/internal/statement"
	"github.com/pgadvisory/pgadvisory/internal/under"
)

// An anyTry is one call's try of any of some keys.
type anyTry struct {
	l          *Locker
	ctx, limit context.Context
	settings   settings.Call
	claim      *claim
	patient    bool // see request.patient
	start      time.Time
	stamp      uint64
	ended      int    // sessions that ended before they answered
	failed     uint64 // the last failure that this call has seen: see gate.failed
	// asked and change are of the pass over the keys that is under way: whether a request was made, and
	// the first change that ask returned.
	asked  bool
	change <-chan struct{}
	// open are the gates of keys that are not decided: a statement of somebody else was under way.
	open []*gate
	// rest are the keys behind one whose lock the last request was to share: if that is lost
	// before it has it, these are to be asked for.
	rest []advisory.Key
}

func (t *anyTry) watch(g *gate) {
	g.watched++
	t.open = append(t.open, g)
}

// tryEach tries the keys of c: a first few of them and then more, a chunk at a time.
func (t *anyTry) tryEach(c choice) (*handle, error) {
	candidates, size := false, c.first
	for from := 0; from < c.n; size = min(4*size, chunk) {
		keys := make([]advisory.Key, 0, min(size, c.n-from))
		for ; from < c.n && len(keys) < size; from++ {
			if k := c.at(from); !under.Holds(t.ctx, k) {
				keys = append(keys, k)
			}
		}
		candidates = candidates || len(keys) > 0
		if h, err := t.try(keys); h != nil || err != nil {
			return h, err
		}
	}
	if !candidates {
		return nil, notUnder(context.WithoutCancel(t.ctx), c.at(0))
	}
	return nil, nil
}

// tryOpen tries the keys of the open gates once more. If the last pass over the keys has asked the
// server for none, tryOpen waits for a change first.
func (t *anyTry) tryOpen() (*handle, error) {
	if !t.asked {
		select {
		case <-t.change:
		case <-t.limit.Done():
			return nil, bound.Cause(t.limit)
		}
	}
	open := t.open
	t.open, t.asked, t.change = nil, false, nil
	for len(open) > 0 {
		some := open[:min(len(open), chunk)]
		open = open[len(some):]
		keys := make([]advisory.Key, len(some))
		for i, g := range some {
			keys[i] = g.key
		}
		h, err := t.try(keys)
		t.l.unwatch(some) // which are watched again if need be
		if h != nil || err != nil {
			t.l.unwatch(open)
			return h, err
		}
	}
	return nil, nil
}

// try asks for the first of the keys that is free, on another session if one ends, and waits for the
// answer.
func (t *anyTry) try(keys []advisory.Key) (*handle, error) {
	for {
		r, change, err := t.ask(keys)
		h, err := t.outcome(r, err)
		switch {
		case h == nil && err == nil && len(t.rest) > 0 && t.limit.Err() == nil:
			keys = t.rest
			continue
		case h == nil && retriable(err):
			if t.ended++; t.ended < maxEnded {
				continue
			}
		}
		t.asked = t.asked || r != nil
		if t.change == nil {
			t.change = change
		}
		return h, unheld(err)
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
		t.l.awaitAnswer(t.limit, r)
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
	switch {
	case l.refusal != nil:
		return nil, nil, l.refusal
	case t.patient && l.pausing():
		return nil, nil, l.outage.err
	}
	change = l.watch()
	mode := t.settings.Mode
	r = &request{ctx: t.ctx, settings: t.settings, once: true, claim: t.claim, done: make(chan struct{})}
	free := make([]*gate, 0, len(keys))
	t.rest = nil
	for i, k := range keys {
		g := l.gate(k)
		switch {
		case g.failed.stamp > max(t.stamp, t.failed, g.refusedAt[mode]): // likewise, and whoever asks again would fail too
			t.failed = g.failed.stamp
			dropStatement(free)
			return nil, change, g.failed.err
		case g.refusedAt[mode] > t.stamp: // while this call waited for that statement
			g.advance()
		case g.hold != nil && g.hold.admits(r) && !g.queue.conflictsUpTo(mode, t.stamp):
			if len(free) > 0 {
				t.watch(g) // if those before it are not free
				break
			}
			t.rest = keys[i+1:]
			g.join(r, t.stamp)
			return r, change, nil
		case t.mayBeFree(g):
			g.beginStatement() // so that a key that is given twice is asked for once
			free = append(free, g)
		}
	}
	if len(free) == 0 {
		return nil, change, nil
	}
	return r, change, t.submit(r, free)
}

// mayBeFree reports whether only the server can say if the key of g is free. Otherwise it is not
// free now; if it may be after a statement that is under way, or that mayBeFree has sent for it,
// the gate is watched. The mutex is held.
func (t *anyTry) mayBeFree(g *gate) bool {
	mode := t.settings.Mode
	conflicts := g.queue.conflicts(mode)
	switch {
	case g.busy() || g.probing:
		t.watch(g)
	case g.hold != nil && !conflicts && !excludes(g.hold.mode, mode): // a writer waited for it, as of the last ping
		t.watch(g)
		g.askWhetherWanted()
	case g.hold != nil:
	case g.waiter != nil && conflicts:
	case g.waiter != nil && g.waiter.waitsAs(g) && !g.waiter.wait.cut: // for readers, as this one is
		t.watch(g)
		g.tryBesideWaiter(mode)
	case g.waiter != nil: // for nobody any more
		t.watch(g)
		g.waiter.cutSlice()
	default:
		return true
	}
	return false
}

// dropStatement ends the statement of the gates that is not sent after all. The mutex is held.
func dropStatement(gates []*gate) {
	for _, g := range gates {
		g.endStatement()
		g.advance()
	}
}

// submit has the server take, for r, the first of the gates' keys that is free. The mutex is held.
func (t *anyTry) submit(r *request, gates []*gate) error {
	l := t.l
	r.gate = gates[0]
	session, err := l.frontSession()
	if err != nil {
		dropStatement(gates)
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
			won, err = statement.Session{Ctx: ctx, On: conn}.Exec(lockfn.TryAny(keys, mode, session.pid))
			if won > int64(len(keys)) {
				return session.changed("another session")
			}
			if err == nil && won > 0 && l.settings.Fencing {
				token, err = session.drawToken()
			}
			return err
		},
		done: func(_ bool, _ uint64, err error) {
			for _, g := range gates {
				g.endStatement()
			}
			if l.refusal != nil {
				r.answer(l.refusal) // closed meanwhile: what was won is given back
			}
			if err == nil {
				t.answer(r, gates, won, session, token, upTo)
			}
			r.answer(err)
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
