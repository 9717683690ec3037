package locker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/under"
)

const (
	// maxQueues is how many queues a wait for any of some keys stands in.
	maxQueues = 128
	// retryAny is the least pause before the keys are tried again in whose queues it does not stand.
	retryAny = 100 * time.Millisecond
	// retryChunk is the longest for each statement of such a pass.
	retryChunk = time.Second
)

// A choice is keys of which a caller wants any. They are computed as they are needed.
type choice struct {
	name  advisory.Key // for errors and events: the first key, or that of the semaphore
	n     int
	first int // how many to ask for first
	at    func(i int) advisory.Key
}

func choiceOf(keys []advisory.Key) choice {
	return choice{name: first(keys), n: len(keys), first: chunk, at: func(i int) advisory.Key { return keys[i] }}
}

// queues returns the keys to wait for, each once: all, or as many as may be, spread from a start
// that is chosen at random.
func (c choice) queues(ctx context.Context) (keys []advisory.Key) {
	n := min(c.n, maxQueues)
	start := rand.N(c.n)
	for i := range n {
		if k := c.at((start + i*(c.n/n)) % c.n); !under.Holds(ctx, k) {
			keys = append(keys, k)
		}
	}
	return lockfn.Sorted(keys)
}

// pause returns how long a wait leaves the keys alone after a pass over all of them, which took that
// long. A pass that a slow link held up costs the server no more than another.
func (c choice) pause(took time.Duration) time.Duration {
	return max(retryAny, min(10*took, time.Duration(1+c.n/chunk)*retryChunk))
}
