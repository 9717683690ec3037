package advisoryotel

import (
	"context"
	"strconv"
	"testing"
	"time"

	noopmetric "go.opentelemetry.io/otel/metric/noop"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// What the package itself adds to the cost of the SDK.
func TestObserveAllocatesNothing(t *testing.T) {
	o, err := New(WithMeterProvider(noopmetric.NewMeterProvider()), WithTracerProvider(nooptrace.NewTracerProvider()))
	if err != nil {
		t.Fatal(err)
	}
	busy := &advisory.NotAcquiredError{Key: advisory.Int64(4820)}
	for _, e := range []advisory.Event{
		{Kind: advisory.Acquired, Key: advisory.Int64(4820), Label: "account", Waited: time.Millisecond},
		{Kind: advisory.Released, Key: advisory.Int64(4820), Label: "account", Held: time.Millisecond},
		{Kind: advisory.NotAcquired, Key: advisory.Int64(4820), Err: busy},
		{Kind: advisory.SessionOpened, PID: 1},
	} {
		if n := testing.AllocsPerRun(100, func() { o.Observe(context.Background(), e) }); n != 0 {
			t.Errorf("%v: %v allocations", e.Kind, n)
		}
	}
}

// A program that makes labels of its keys does not fill the memory.
func TestCacheIsLimited(t *testing.T) {
	var c cache
	for n := range maxKnown + 1000 {
		o := c.options(series{label: strconv.Itoa(n)})
		if o == nil || len(o.add) != 1 || len(o.record) != 1 {
			t.Fatalf("%+v", o)
		}
	}
	if len(c.known) != maxKnown {
		t.Errorf("%d series are kept", len(c.known))
	}
}
