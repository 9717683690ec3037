//go:build unix

package harness

import (
	"context"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// Observed is an Observer.
type Observed func(advisory.Event)

func (f Observed) Observe(_ context.Context, e advisory.Event) { f(e) }
