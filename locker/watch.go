package locker

import (
	"slices"
)

// watch returns what is closed when the next statement about some key, or wait for one, is
// done. The mutex is held.
func (l *Locker) watch() <-chan struct{} {
	if l.change == nil {
		l.change = make(chan struct{})
	}
	return l.change
}

func (l *Locker) wakeWatchers() {
	if l.change != nil {
		close(l.change)
		l.change = nil
	}
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
