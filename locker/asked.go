package locker

import (
	"context"
	"slices"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
)

// askedFor is for how long an answer serves others who ask for the same key.
const askedFor = 100 * time.Millisecond

// An asked has the last answer to the question who holds a key, for events. If many waits become long
// at once, they ask one after the other and share answers. So the session that takes locks has time for
// other calls.
type asked struct {
	turn   chan struct{} // guards the rest
	key    advisory.Key
	at     time.Time
	answer []advisory.Holder
}

// holders returns what ask returns for key, or returned a moment ago. If the turn and the answer do not
// come within a second, or before ctx ends, it returns nil.
func (a *asked) holders(ctx context.Context, key advisory.Key, ask func(context.Context, advisory.Key) []advisory.Holder) []advisory.Holder {
	ctx, cancel := context.WithTimeout(ctx, bound.Grace)
	defer cancel()
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return nil
	}
	if a.key != key || time.Since(a.at) >= askedFor {
		answer := ask(ctx, key)
		if ctx.Err() != nil {
			return answer
		}
		a.key, a.at, a.answer = key, time.Now(), answer
	}
	return slices.Clone(a.answer)
}
