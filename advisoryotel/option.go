package advisoryotel

import (
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// An Option is an option of [New].
type Option func(*config)

type config struct {
	meters        metric.MeterProvider
	tracers       trace.TracerProvider
	keysInMetrics bool
	keysInSpans   bool
}

// WithMeterProvider sets the provider of the metrics. The default, also for nil, is
// otel.GetMeterProvider. A provider of package metric/noop turns metrics off.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(c *config) { c.meters = p }
}

// WithTracerProvider sets the provider of the spans. The default, also for nil, is
// otel.GetTracerProvider. A provider of package trace/noop turns spans off.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(c *config) { c.tracers = p }
}

// WithKeysInMetrics adds the key to the attributes of metrics. Each key makes time series of its own:
// use it only if the program locks few keys.
func WithKeysInMetrics() Option {
	return func(c *config) { c.keysInMetrics = true }
}

// WithKeysInSpans adds the key to the attributes of spans, and the text of an error to their status: it
// names the key and the holders. A key may identify a person, as the number of an account does.
func WithKeysInSpans() Option {
	return func(c *config) { c.keysInSpans = true }
}
