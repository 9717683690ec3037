package wait

import (
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

const (
	// A wait that lasts is looked at after lookAfter, as the server does by
	// deadlock_timeout, and then every lookEvery.
	lookAfter = time.Second
	lookEvery = 500 * time.Millisecond
	// A circle that is still there this long after it was first seen is told
	// also to those who are not its first: the first may not be able to see it.
	// It is long, so that a first that is merely slow is not the first of two.
	tellOthers = 10 * lookEvery
)

// watch is what a wait has seen of a deadlock so far.
type watch struct {
	key  advisory.Key
	next time.Time
	mark int64 // of the circle seen at the last look; 0: none
	seen time.Time
	done bool // a look has been made
}

// lookDue returns when the next look must not be late: the first one, and one that decides
// about a circle. Others are made at the end of the slice that is under way then, because
// each slice that ends early gives up a place in the server's queue.
func (w *Wait) lookDue() (due time.Time, ok bool) {
	return w.watch.next, w.watch.key == w.Key && (!w.watch.done || w.watch.mark != 0)
}

// lookForDeadlock returns an error if this wait is to give way. The server's own
// detector does not see waits that are cut into slices or tries.
//
// Sessions are not all looked at in one moment, so that a circle counts once it was
// seen twice. Each waiter finds it by itself; so that not all of them give way, its
// first is told at once and the others only if it goes on.
func (w *Wait) lookForDeadlock() error {
	now := time.Now()
	if w.watch.key != w.Key {
		w.watch = watch{key: w.Key, next: now.Add(lookAfter - min(time.Since(w.Start), lookAfter))}
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
	w.watch.next, w.watch.done = now.Add(lookEvery), true
	mark, first := lockfn.Circle(rows)
	switch {
	case mark == 0 || mark != w.watch.mark:
		w.watch.mark, w.watch.seen = mark, now
	case first, now.Sub(w.watch.seen) >= tellOthers:
		return fmt.Errorf("%w: this session and the holder wait for each other, perhaps by way of others: release what is held and try again", advisory.ErrDeadlock)
	}
	return nil
}
