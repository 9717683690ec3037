package locker

import (
	"context"
	"database/sql"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/statement"
)

// advanceTries has those tries answered that are not served with the front. What excludes them
// in this process they were measured by as they came, so they are all of one mode.
func (g *gate) advanceTries() {
	r := g.queue.try()
	switch {
	case r == nil || g.busy() || g.probing:
	case g.hold != nil && excludes(g.hold.mode, r.settings.Mode):
		g.refuseTries(r.settings.Mode, g.l.stamps)
	case g.hold != nil && g.hold.wanted:
		g.askWhetherWanted()
	case g.hold != nil:
	case g.waiter != nil && g.waiter.waitsAs(g) && !g.waiter.wait.cut:
		g.tryBesideWaiter(r.settings.Mode)
	case g.isPolled():
		g.tryFront(g.queue.front()) // now, and not with the next poll
	}
}

// refuseTries refuses the tries of that mode that came no later than the stamp.
func (g *gate) refuseTries(mode advisory.Mode, upTo uint64) {
	g.failTries(mode, upTo, nil)
}

func (g *gate) failTries(mode advisory.Mode, upTo uint64, err error) {
	for r := g.queue.try(); r != nil && r.stamp <= upTo && r.settings.Mode == mode; r = g.queue.try() {
		g.queue.remove(r)
		r.answer(err)
	}
}

// retryTries leaves those of the tries in the queue that are to be made on another session after err,
// and fails the others.
func (g *gate) retryTries(mode advisory.Mode, upTo uint64, err error) {
	for e := g.queue.tries.Front(); e != nil; {
		r := e.Value.(*request)
		e = e.Next()
		if r.stamp <= upTo && r.settings.Mode == mode && r.live() && !r.again(err) {
			g.queue.remove(r)
			r.answer(unheld(err))
		}
	}
}

// askWhetherWanted finds out, for readers' tries, whether somebody still waits on the server for
// the shared lock that is held: the last ping may have been a heartbeat ago.
func (g *gate) askWhetherWanted() {
	h, upTo := g.hold, g.l.stamp()
	g.probing = true
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
			g.endProbe()
			if g.hold == h && err == nil {
				h.wanted = wanted
			}
			if g.hold == h && err != nil {
				g.failed = failure{err, upTo}
				g.failTries(advisory.Shared, upTo, err)
				g.advance()
				return
			}
			if g.hold == h && h.wanted {
				g.refusedAt[advisory.Shared] = upTo
				g.failTries(advisory.Shared, upTo, err)
			}
			g.advance()
		},
	})
}

// tryBesideWaiter tries the key for readers' tries while another session waits for it, whose answer may
// be on its way. If it is granted, the one that waits waits no more, and what that is granted
// is given back.
func (g *gate) tryBesideWaiter(mode advisory.Mode) {
	s, err := g.l.frontSession()
	if err != nil {
		return // closed: all have been answered
	}
	upTo := g.l.stamp()
	g.probing = true
	s.submit(&op{tries: 1, req: &lockfn.Request{Op: lockfn.OpTry, Key: g.key, Mode: mode}, done: func(ok bool, token uint64, err error) {
		g.endProbe()
		front := g.queue.front()
		switch {
		case lockfn.Canceled(err): // once more
		case err != nil:
			g.failed = failure{err, upTo}
			g.retryTries(mode, upTo, err)
		case !ok:
			g.refusedAt[mode] = upTo
			g.refuseTries(mode, upTo)
		case g.hold != nil || g.busy() || front == nil || front.settings.Mode != mode:
			s.releaseExtra(g.key, mode)
		default:
			if g.waiter != nil {
				g.waiter.cutSlice()
			}
			g.granted(s, mode, token, upTo)
			return
		}
		g.advance()
	}})
}

func (g *gate) endProbe() {
	g.probing = false
	g.l.wakeWatchers()
}

// markWanted has no more readers join a lock that somebody waits for on the server: there may
// always be one.
func (s *session) markWanted() {
	wanted := map[advisory.Key]bool{}
	if !s.query(lockfn.Wanted, func(rows *sql.Rows) error {
		l, err := lockfn.ScanHeld(rows)
		wanted[l.Key] = true
		return err
	}) {
		return
	}
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	for k, h := range s.holds {
		if h.wanted = wanted[k]; !h.wanted {
			h.gate.advance()
		}
	}
}
