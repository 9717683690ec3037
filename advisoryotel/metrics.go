package advisoryotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/metric"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// prefix begins the names of the metrics.
const prefix = "postgresql.client.advisory_lock."

// The boundaries of db.client.operation.duration, which fit one round trip, and longer ones: a wait
// lasts as long as the work of others, a hold as long as the work.
var (
	waitBuckets = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300}
	holdBuckets = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 3600, 21600, 86400}
)

// eventMetrics are the metrics that come from events.
type eventMetrics struct {
	keys     bool
	attempts metric.Int64Counter
	losses   metric.Int64Counter
	doubts   metric.Int64Counter
	wait     metric.Float64Histogram
	hold     metric.Float64Histogram
	cache    cache
}

func newEventMetrics(meter metric.Meter, keys bool) (*eventMetrics, error) {
	m := &eventMetrics{keys: keys}
	var errs [5]error
	m.attempts, errs[0] = meter.Int64Counter(prefix+"attempts", metric.WithUnit("{attempt}"),
		metric.WithDescription("Calls for an advisory lock that ended, with or without the lock."))
	m.wait, errs[1] = meter.Float64Histogram(prefix+"wait.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of calls for an advisory lock, until they ended."),
		metric.WithExplicitBucketBoundaries(waitBuckets...))
	m.hold, errs[2] = meter.Float64Histogram(prefix+"hold.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration for which advisory locks were held."),
		metric.WithExplicitBucketBoundaries(holdBuckets...))
	m.losses, errs[3] = meter.Int64Counter(prefix+"losses", metric.WithUnit("{lock}"),
		metric.WithDescription("Advisory locks that ended with their session."))
	m.doubts, errs[4] = meter.Int64Counter(prefix+"unconfirmed", metric.WithUnit("{event}"),
		metric.WithDescription("Times at which no standby confirmed the primary of a Locker with WithStandby."))
	return m, errors.Join(errs[:]...)
}

// record adds e to the metrics. ctx has the span for exemplars, and may have ended.
func (m *eventMetrics) record(ctx context.Context, e advisory.Event) {
	defer handlePanic("recording metrics")
	switch e.Kind {
	case advisory.Acquired, advisory.NotAcquired:
		end := m.cache.options(endOf(e, m.keys))
		m.attempts.Add(ctx, 1, end.add...)
		m.wait.Record(ctx, max(e.Waited, 0).Seconds(), end.record...)
	case advisory.Released, advisory.Lost:
		if e.Held > 0 {
			m.hold.Record(ctx, e.Held.Seconds(), m.cache.options(endOf(e, m.keys)).record...)
		}
	case advisory.Unconfirmed: // about no lock, and rare
		m.doubts.Add(ctx, 1, metric.WithAttributes(postgresql, errorTypeKey.String(errorType(e.Err))))
	}
	// A counter that appears with its first loss would show no increase, so it appears with the lock.
	switch e.Kind {
	case advisory.Acquired:
		m.losses.Add(ctx, 0, m.cache.options(lockOf(e, m.keys)).add...)
	case advisory.Lost:
		m.losses.Add(ctx, 1, m.cache.options(lockOf(e, m.keys)).add...)
	}
}
