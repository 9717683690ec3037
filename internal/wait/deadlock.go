package wait

import (
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

const (
	// A wait checks for a deadlock after firstCheck, as the server does after deadlock_timeout, and
	// then every checkInterval.
	firstCheck    = time.Second
	checkInterval = 500 * time.Millisecond
	// If a circle still exists othersFail after it was first seen, waits other than its first
	// fail too: the first may not have the privileges to see it. The time is long, so that the
	// others do not fail in addition to a first that is merely slow.
	othersFail = 10 * checkInterval
)

// A deadlockWatch is what a wait has seen of a deadlock so far.
type deadlockWatch struct {
	key  advisory.Key
	next time.Time
	mark int64 // of the circle that the last check saw; 0: none
	seen time.Time
	done bool // a check was made
}

// checkDue returns when the next check must not be late: the first one, and one that decides
// about a circle. Other checks are made at the end of the slice that is under way then, because
// each slice that ends early gives up a place in the server's queue.
func (w *Wait) checkDue() (due time.Time, ok bool) {
	return w.watch.next, w.watch.key == w.Key && (!w.watch.done || w.watch.mark != 0)
}

// checkDeadlock returns an error if this wait is in a deadlock and must fail. The server's own
// detector does not see waits that are cut into slices or tries.
//
// A check does not read all sessions at the same moment, so a circle counts only once it was seen
// twice. Each waiter finds the circle by itself. Its first waiter fails at once, the others only if
// the circle persists.
func (w *Wait) checkDeadlock() error {
	now := time.Now()
	if w.watch.key != w.Key {
		w.watch = deadlockWatch{key: w.Key, next: now.Add(firstCheck - min(time.Since(w.Start), firstCheck))}
	}
	if now.Before(w.watch.next) {
		return nil
	}
	before := w.Before
	if w.alone {
		before += lockfn.NoTimeout
	}
	rows, err := w.Exec(before + lockfn.Blocks)
	if err == nil && rows > 0 {
		rows, err = w.Exec(before + lockfn.Deadlock)
	}
	if err != nil {
		return err
	}
	now = time.Now()
	w.watch.next, w.watch.done = now.Add(checkInterval), true
	mark, first := lockfn.Circle(rows)
	switch {
	case mark == 0 || mark != w.watch.mark:
		w.watch.mark, w.watch.seen = mark, now
	case first, now.Sub(w.watch.seen) >= othersFail:
		return fmt.Errorf("%w: this session and the holder wait for each other, directly or through other sessions: release the locks of this session and try again", advisory.ErrDeadlock)
	}
	return nil
}
