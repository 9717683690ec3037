package memlock

import (
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// Occupy has another node take key until release is called. It panics if key is held in a way that
// excludes that.
func (l *Locker) Occupy(key advisory.Key, opts ...advisory.Option) (release func()) {
	session := make([]advisory.LockerOption, len(opts))
	for i, o := range opts {
		session[i] = o
	}
	s, err := l.check(key, session)
	if err != nil {
		panic(fmt.Sprintf("locktest: Occupy(%v): %v", key, err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.line(key)
	for _, h := range n.holds {
		if excludes(h.mode, s.Mode) {
			who := "another node"
			if !h.other {
				who = "the Locker under test"
			}
			panic(fmt.Sprintf("locktest: Occupy(%v): %s holds it (%v)", key, who, h.mode))
		}
	}
	l.nodes++
	h := &hold{line: n, key: key, mode: s.Mode, settings: s, since: time.Now(), other: true, pid: l.pid() + l.nodes}
	n.holds = append(n.holds, h)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		n.remove(h)
	}
}

// Lose takes key away from all who hold it by this Locker, as the end of its session would.
func (l *Locker) Lose(key advisory.Key) {
	// As in earnest, it takes errors.Is to tell.
	cause := fmt.Errorf("%w: the test says so", advisory.ErrLost)
	l.mu.Lock()
	lost := l.ours(key)
	now := time.Now()
	for _, h := range lost {
		h.end(cause)
	}
	l.mu.Unlock()
	for _, h := range lost {
		h.observe(advisory.Event{Kind: advisory.Lost, Held: now.Sub(h.since), Err: cause})
	}
}
