package advisoryotel

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// A series is what tells the time series of one metric apart, and what spans say as well.
type series struct {
	mode      advisory.Mode
	key       advisory.Key // the zero Key if keys are not wanted
	label     string
	outcome   string // "" for what has none
	errorType string // "" for what did not fail
}

// lockOf returns what is known of the lock of e.
func lockOf(e advisory.Event, withKey bool) series {
	s := series{mode: e.Mode, label: e.Label}
	if withKey {
		s.key = e.Key
	}
	return s
}

// endOf returns what is known of the call or the hold that e ends.
func endOf(e advisory.Event, withKey bool) series {
	s := lockOf(e, withKey)
	s.errorType = errorType(e.Err)
	switch {
	case e.Kind == advisory.Acquired:
		s.outcome = "acquired"
	case e.Kind == advisory.Released:
		s.outcome = "released"
	case e.Kind == advisory.Lost:
		s.outcome = "lost"
	case s.errorType != "":
		s.outcome = "error"
	default:
		s.outcome = "not_acquired"
	}
	return s
}

func (s series) attributes() []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 10) // a span appends some
	attrs = append(attrs, postgresql, modeKey.String(s.mode.String()))
	if s.label != "" {
		attrs = append(attrs, labelKey.String(s.label))
	}
	if !s.key.IsZero() {
		attrs = append(attrs, keyKey.String(s.key.String()))
	}
	if s.outcome != "" {
		attrs = append(attrs, outcomeKey.String(s.outcome))
	}
	if s.errorType != "" {
		attrs = append(attrs, errorTypeKey.String(s.errorType))
	}
	return attrs
}

// options are the attributes of a series as instruments take them.
type options struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

// maxKnown limits what a cache keeps. The SDK drops the attributes of more series anyway.
const maxKnown = 2000

// A cache keeps the options of each series: to sort attributes costs more than to record.
type cache struct {
	mu    sync.RWMutex
	known map[series]*options
}

func (c *cache) options(s series) *options {
	if o := c.get(s); o != nil {
		return o
	}
	set := metric.WithAttributeSet(attribute.NewSet(s.attributes()...))
	o := &options{[]metric.AddOption{set}, []metric.RecordOption{set}}
	c.put(s, o)
	return o
}

func (c *cache) get(s series) *options {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.known[s]
}

func (c *cache) put(s series, o *options) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[series]*options{}
	}
	if len(c.known) < maxKnown {
		c.known[s] = o
	}
}
