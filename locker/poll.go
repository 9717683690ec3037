package locker

import (
	"time"
)

// pollEvery is how often the keys are tried for which there is no session to wait.
const pollEvery = 25 * time.Millisecond

// pollFor has g polled. The mutex is held.
func (l *Locker) pollFor(g *gate) {
	g.beginPolling()
	if !l.polling {
		l.pollAfter(pollEvery)
	}
}

// pollAfter has the polled keys tried after d. The mutex is held.
func (l *Locker) pollAfter(d time.Duration) {
	l.polling = true
	if l.pollTimer == nil {
		l.pollTimer = time.AfterFunc(d, l.poll)
	} else {
		l.pollTimer.Reset(d)
	}
}

// nextPolled takes the first of those that are polled. The mutex is held.
func (l *Locker) nextPolled() *gate {
	g := l.polled[0]
	l.polled = l.polled[1:]
	g.listed = false
	g.endPolling()
	return g
}

// pollAtOnce is how many keys are polled at one time, so that neither a batch nor the time under
// the mutex grows with them: where more are waited for they take turns.
const pollAtOnce = 1024

// poll tries the polled keys in one batch.
func (l *Locker) poll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pausing() {
		l.pollAfter(time.Until(l.outage.until))
		return
	}
	turn := l.polled[:min(len(l.polled), pollAtOnce)]
	l.polled = l.polled[len(turn):]
	waits := true // there may be a session to wait
	for _, g := range turn {
		g.listed = false
		if !g.isPolled() {
			continue
		}
		if g.queue.front() == nil || l.refusal != nil {
			g.endPolling()
			g.advance()
			continue
		}
		if waits && !g.busy() {
			if s := l.sessionToWait(); s != nil {
				g.endPolling()
				s.beginWait(g)
				continue
			}
			waits = false
		}
		g.listed = true
		l.polled = append(l.polled, g)
		if !g.busy() && !g.probing {
			g.tryFront(g.queue.front())
		}
	}
	l.polling = len(l.polled) > 0
	if l.polling {
		l.pollAfter(pollEvery)
	}
}
