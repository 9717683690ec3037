package wait

import (
	"math/rand/v2"
	"time"
)

const (
	firstPause = 2 * time.Millisecond
	lastPause  = 50 * time.Millisecond
)

// Pause sleeps between two tries: longer each time up to a limit, and not beyond the end of Limit.
// The length is random, so that waiters do not try in step.
func (w *Wait) Pause() {
	w.pause = min(max(w.pause*3/2, firstPause), lastPause)
	timer := time.NewTimer(w.pause/2 + rand.N(w.pause))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.Limit.Done():
	}
}
