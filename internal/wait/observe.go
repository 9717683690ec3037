package wait

import (
	"context"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/settings"
)

// Observe sends the Observer, if there is one, the event of the end of a try or a wait.
func Observe(ctx context.Context, k advisory.Key, s settings.Call, start time.Time, granted bool, err error) {
	if s.Observer == nil {
		return
	}
	e := advisory.Event{Kind: advisory.NotAcquired, Key: k, Mode: s.Mode, Label: s.Label, Waited: time.Since(start), Err: err}
	if granted {
		e.Kind = advisory.Acquired
	}
	s.Observer.Observe(ctx, e)
}
