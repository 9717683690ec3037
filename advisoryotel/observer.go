package advisoryotel

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"

	"github.com/pgadvisory/pgadvisory/advisory"
)

const scope = "github.com/pgadvisory/pgadvisory/advisoryotel"

// An Observer is an [advisory.Observer] that records metrics and spans. Several goroutines and Lockers
// may use it at once.
type Observer struct {
	events  *eventMetrics
	spans   *spans
	lockers *lockers
}

var _ advisory.Observer = (*Observer)(nil)

// New returns an Observer. It fails if the meter provider cannot make an instrument. Make one Observer
// and keep it: each registers a callback with the meter provider.
func New(opts ...Option) (*Observer, error) {
	c := config{}
	for _, opt := range opts {
		if opt != nil {
			opt(&c)
		}
	}
	if c.meters == nil {
		c.meters = otel.GetMeterProvider()
	}
	if c.tracers == nil {
		c.tracers = otel.GetTracerProvider()
	}
	meter := c.meters.Meter(scope)
	events, err := newEventMetrics(meter, c.keysInMetrics)
	if err != nil {
		return nil, fmt.Errorf("advisoryotel: new: %w", err)
	}
	lockers, err := newLockers(meter)
	if err != nil {
		return nil, fmt.Errorf("advisoryotel: new: %w", err)
	}
	return &Observer{events: events, spans: newSpans(c.tracers, c.keysInSpans), lockers: lockers}, nil
}

// Observe records e. It waits for an exporter only if the tracer provider has a processor of
// WithSyncer. It passes a panic of a provider to [otel.Handle].
func (o *Observer) Observe(ctx context.Context, e advisory.Event) {
	if o == nil {
		return
	}
	if ctx == nil {
		ctx = context.Background()
	}
	o.events.record(ctx, e)
	o.spans.record(ctx, e)
}

// handlePanic, deferred, reports a panic and ends it. It would take the lock from the caller. In the
// event of a lost lock, which comes on a goroutine of its own, it would end the program.
func handlePanic(what string) {
	if v := recover(); v != nil {
		otel.Handle(fmt.Errorf("advisoryotel: %s: panic: %v", what, v))
	}
}
