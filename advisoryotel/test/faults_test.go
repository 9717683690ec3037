package otel_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisoryotel"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// handled collects what goes to OpenTelemetry's error handler during the test.
func handled(t *testing.T) func() []error {
	var mu sync.Mutex
	var errs []error
	before := otel.GetErrorHandler()
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	}))
	t.Cleanup(func() { otel.SetErrorHandler(before) })
	return func() []error {
		mu.Lock()
		defer mu.Unlock()
		return errs
	}
}

// A faulty provider makes instruments and spans that call do.
type faultyMeters struct {
	noopmetric.MeterProvider
	do func()
}

type faultyMeter struct {
	noopmetric.Meter
	do func()
}

type faultyCounter struct {
	noopmetric.Int64Counter
	do func()
}

func (p faultyMeters) Meter(string, ...metric.MeterOption) metric.Meter { return faultyMeter{do: p.do} }

func (m faultyMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return faultyCounter{do: m.do}, nil
}

func (c faultyCounter) Add(context.Context, int64, ...metric.AddOption) { c.do() }

type faultyTracers struct {
	nooptrace.TracerProvider
	do func()
}

type faultyTracer struct {
	nooptrace.Tracer
	do func()
}

func (p faultyTracers) Tracer(string, ...trace.TracerOption) trace.Tracer {
	return faultyTracer{do: p.do}
}

func (f faultyTracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	f.do()
	return f.Tracer.Start(ctx, name, opts...)
}

// Without this module an Observer that panics takes the lock from its caller. A fault of telemetry must
// not, nor end the program when the lock is lost.
func TestProviderThatPanics(t *testing.T) {
	fault := func() { panic("no metrics today") }
	for name, opts := range map[string][]advisoryotel.Option{
		"recording metrics": {advisoryotel.WithMeterProvider(faultyMeters{do: fault})},
		"recording spans":   {advisoryotel.WithTracerProvider(faultyTracers{do: fault})},
	} {
		t.Run(name, func(t *testing.T) {
			errs := handled(t)
			db := open(t, "postgres", pgtest.URL(t))
			l := newLocker(t, db, advisory.WithObserver(newObserver(t, opts...)))
			ran, err := l.TryDo(t.Context(), key, func(context.Context) error {
				if !l.Holds(key) {
					t.Error("not held")
				}
				return nil
			})
			if !ran || err != nil {
				t.Error(ran, err)
			}
			l.TryLock(cancelled(t), key)
			held := lock(t, l, key)
			n := len(errs())
			terminate(t, db)
			receive(t, "the lock is lost", held.Context().Done())
			eventually(t, "the loss was reported", func() bool { return len(errs()) > n })
			for _, err := range errs() {
				if !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "no metrics today") {
					t.Error(err)
				}
			}
			if len(errs()) < map[string]int{"recording metrics": 4, "recording spans": 5}[name] { // the release has no counter
				t.Errorf("%q", errs())
			}
		})
	}
}

// A fault of the metrics leaves the spans.
func TestSpansWithoutMetrics(t *testing.T) {
	handled(t)
	tel := newTelemetry(t, advisoryotel.WithMeterProvider(faultyMeters{do: func() { panic("no metrics today") }}))
	tel.Observe(t.Context(), advisory.Event{Kind: advisory.Acquired})
	if len(tel.ended()) != 1 {
		t.Errorf("%v", tel.ended())
	}
}

// An instrument that blocks blocks the call that it reports on, and nothing else: the Locker's pings
// go on, and so do other calls.
func TestInstrumentThatBlocks(t *testing.T) {
	entered, letGo := make(chan struct{}), make(chan struct{})
	var once sync.Once
	block := func() {
		once.Do(func() {
			close(entered)
			<-letGo
		})
	}
	for name, opt := range map[string]advisoryotel.Option{
		"meter":  advisoryotel.WithMeterProvider(faultyMeters{do: block}),
		"tracer": advisoryotel.WithTracerProvider(faultyTracers{do: block}),
		"exporter of WithSyncer": advisoryotel.WithTracerProvider(
			sdktrace.NewTracerProvider(sdktrace.WithSyncer(spanExporter{do: block}))),
	} {
		t.Run(name, func(t *testing.T) {
			once, entered, letGo = sync.Once{}, make(chan struct{}), make(chan struct{})
			l := newLocker(t, open(t, "pgx", pgtest.URL(t)))
			blocked := advisory.WithObserver(newObserver(t, opt))
			got := make(chan advisory.Lock, 1)
			go func() { got <- lock(t, l, key, blocked) }()
			receive(t, "it blocks", entered)
			for n := range int64(20) {
				unlock(t, lock(t, l, advisory.Int64(n)))
			}
			if !l.Holds(key) {
				t.Error("the lock is not held")
			}
			close(letGo)
			unlock(t, receive(t, "the call returns", got))
		})
	}
}

type spanExporter struct {
	do  func()
	err error
}

func (e spanExporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	e.do()
	return e.err
}

func (spanExporter) Shutdown(context.Context) error { return nil }

type metricExporter struct {
	do  func()
	err error
}

func (e metricExporter) Export(context.Context, *metricdata.ResourceMetrics) error {
	e.do()
	return e.err
}

func (metricExporter) Temporality(k sdkmetric.InstrumentKind) metricdata.Temporality {
	return sdkmetric.DefaultTemporalitySelector(k)
}

func (metricExporter) Aggregation(k sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	return sdkmetric.DefaultAggregationSelector(k)
}

func (metricExporter) ForceFlush(context.Context) error { return nil }
func (metricExporter) Shutdown(context.Context) error   { return nil }

// While the exporters block, with full queues, or fail, locks are taken and released.
func TestExporterThatIsDown(t *testing.T) {
	for name, failing := range map[string]bool{"blocks": false, "fails": true} {
		t.Run(name, func(t *testing.T) {
			errs := handled(t)
			exporting, spans, letGo := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
			wait := func(entered chan struct{}) func() {
				return func() {
					select {
					case entered <- struct{}{}:
					default: // it is known already
					}
					if !failing {
						<-letGo
					}
				}
			}
			var down error
			if failing {
				down = errors.New("collector is down")
			}
			meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(
				metricExporter{wait(exporting), down}, sdkmetric.WithInterval(time.Millisecond), sdkmetric.WithTimeout(time.Hour))))
			tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spanExporter{wait(spans), down},
				sdktrace.WithMaxQueueSize(2), sdktrace.WithMaxExportBatchSize(1), sdktrace.WithBatchTimeout(time.Millisecond)))
			o := newObserver(t, advisoryotel.WithMeterProvider(meters), advisoryotel.WithTracerProvider(tracers))
			l := newLocker(t, open(t, "postgres", pgtest.URL(t)), advisory.WithObserver(o))
			defer o.RegisterStats(l)()

			unlock(t, lock(t, l, key))
			receive(t, "metrics are exported", exporting)
			receive(t, "spans are exported", spans)
			for range 100 {
				unlock(t, lock(t, l, key))
			}
			if failing {
				eventually(t, "the failure is reported", func() bool { return len(errs()) > 0 })
			}
			close(letGo)
			for _, err := range []error{meters.Shutdown(t.Context()), tracers.Shutdown(t.Context())} {
				if err != nil && !failing {
					t.Error(err)
				}
			}
			unlock(t, lock(t, l, key)) // into providers that are shut down
		})
	}
}

func TestProvidersThatAreShutDown(t *testing.T) {
	errs := handled(t)
	tel := newTelemetry(t)
	early := lock(t, newLocker(t, open(t, "postgres", pgtest.URL(t)), advisory.WithObserver(tel)), key)
	for _, err := range []error{tel.meters.Shutdown(t.Context()), tel.tracer.Shutdown(t.Context())} {
		if err != nil {
			t.Error(err)
		}
	}
	unlock(t, early)
	l := newLocker(t, open(t, "postgres", pgtest.URL(t)), advisory.WithObserver(tel))
	unregister := tel.RegisterStats(l)
	unlock(t, lock(t, l, key))
	unregister()
	if len(errs()) != 0 {
		t.Errorf("%q", errs())
	}

	// And New after the end of the program's telemetry.
	o := newObserver(t, advisoryotel.WithMeterProvider(tel.meters), advisoryotel.WithTracerProvider(tel.tracer))
	defer o.RegisterStats(l)()
	unlock(t, lock(t, l, key, advisory.WithObserver(o)))
}

// Without providers, and for nil, the global ones serve, also if the program sets them later.
func TestGlobalProviders(t *testing.T) {
	o := newObserver(t, nil, advisoryotel.WithMeterProvider(nil), advisoryotel.WithTracerProvider(nil))
	tel := newTelemetry(t)
	l := newLocker(t, open(t, "postgres", pgtest.URL(t)), advisory.WithObserver(o))
	defer o.RegisterStats(l)()
	unlock(t, lock(t, l, key))
	otel.SetMeterProvider(tel.meters)
	otel.SetTracerProvider(tel.tracer)
	defer otel.SetMeterProvider(noopmetric.NewMeterProvider())
	defer otel.SetTracerProvider(nooptrace.NewTracerProvider())
	unlock(t, lock(t, l, key))
	equal(t, "attempts", counts(t, tel.metrics(t)["attempts"]), map[string]float64{"mode=exclusive outcome=acquired": 1})
	equal(t, "sessions", counts(t, tel.metrics(t)["session.count"]), map[string]float64{"": 1})
	if len(tel.ended()) != 2 {
		t.Errorf("%v", tel.ended())
	}
}

var errNoInstrument = errors.New("no instrument")

type refusingMeters struct {
	noopmetric.MeterProvider
	meter metric.Meter
}

func (p refusingMeters) Meter(string, ...metric.MeterOption) metric.Meter { return p.meter }

type noHistograms struct{ noopmetric.Meter }

func (noHistograms) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return nil, errNoInstrument
}

type noGauges struct{ noopmetric.Meter }

func (noGauges) Float64ObservableGauge(string, ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	return nil, errNoInstrument
}

type noCallbacks struct{ noopmetric.Meter }

func (noCallbacks) RegisterCallback(metric.Callback, ...metric.Observable) (metric.Registration, error) {
	return nil, errNoInstrument
}

func TestMeterThatMakesNoInstrument(t *testing.T) {
	for _, m := range []metric.Meter{noHistograms{}, noGauges{}, noCallbacks{}} {
		o, err := advisoryotel.New(advisoryotel.WithMeterProvider(refusingMeters{meter: m}))
		if o != nil || !errors.Is(err, errNoInstrument) || !strings.HasPrefix(err.Error(), "advisoryotel: new: ") {
			t.Errorf("%T: %v, %v", m, o, err)
		}
	}
}

type source func() locker.Stats

func (f source) Stats() locker.Stats { return f() }

// A source that panics leaves the others, and the program.
func TestStatsThatPanic(t *testing.T) {
	errs := handled(t)
	tel := newTelemetry(t)
	defer tel.RegisterStats(source(func() locker.Stats { panic("no stats today") }))()
	defer tel.RegisterStats(source(func() locker.Stats { return locker.Stats{Held: 3} }))()
	defer tel.RegisterStats(nil)()
	equal(t, "locks", counts(t, tel.metrics(t)["hold.count"]), map[string]float64{"": 3})
	if len(errs()) != 1 || !strings.Contains(errs()[0].Error(), "no stats today") {
		t.Errorf("%q", errs())
	}
}

// While a collection is stuck, events are recorded and Lockers come and go.
func TestStatsThatBlock(t *testing.T) {
	tel := newTelemetry(t)
	entered, letGo := make(chan struct{}), make(chan struct{})
	defer tel.RegisterStats(source(func() locker.Stats {
		close(entered)
		<-letGo
		return locker.Stats{}
	}))()
	done := make(chan error, 1)
	go func() { done <- tel.reader.Collect(t.Context(), &metricdata.ResourceMetrics{}) }()
	receive(t, "the collection is stuck", entered)
	l := newLocker(t, open(t, "postgres", pgtest.URL(t)), advisory.WithObserver(tel))
	unregister := tel.RegisterStats(l)
	unlock(t, lock(t, l, key))
	unregister()
	close(letGo)
	if err := receive(t, "it ends", done); err != nil {
		t.Error(err)
	}
}

func TestNilObserver(t *testing.T) {
	var none *advisoryotel.Observer
	none.Observe(t.Context(), advisory.Event{Kind: advisory.Acquired})
	none.RegisterStats(source(func() locker.Stats { return locker.Stats{} }))()
	var ctx context.Context
	tel := newTelemetry(t)
	tel.Observe(ctx, advisory.Event{Kind: advisory.Acquired})
	if len(tel.ended()) != 1 || len(tel.metrics(t)) != 3 {
		t.Errorf("%v, %v", tel.ended(), tel.metrics(t))
	}
}

// Many goroutines and Lockers use one Observer, while it is read.
func TestConcurrentUse(t *testing.T) {
	tel := newTelemetry(t)
	db := open(t, "postgres", pgtest.URL(t))
	var wg sync.WaitGroup
	for n := range int64(4) {
		wg.Go(func() {
			l := newLocker(t, db, advisory.WithObserver(tel))
			defer tel.RegisterStats(l)()
			for range 10 {
				if err := l.Do(t.Context(), advisory.Int64(n), func(context.Context) error { return nil }); err != nil {
					t.Error(err)
				}
				tel.metrics(t)
			}
		})
	}
	wg.Wait()
	equal(t, "attempts", counts(t, tel.metrics(t)["attempts"]), map[string]float64{"mode=exclusive outcome=acquired": 40})
	equal(t, "holds", counts(t, tel.metrics(t)["hold.duration"]), map[string]float64{"mode=exclusive outcome=released": 40})
}

// What the Observer costs a call.
func BenchmarkObserve(b *testing.B) {
	for name, opts := range map[string][]advisoryotel.Option{
		"metrics": {advisoryotel.WithTracerProvider(nooptrace.NewTracerProvider())},
		"spans":   {advisoryotel.WithMeterProvider(noopmetric.NewMeterProvider())},
		"both":    nil,
	} {
		b.Run(name, func(b *testing.B) {
			meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
			tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spanExporter{do: func() {}}))
			o := newObserver(b, append([]advisoryotel.Option{advisoryotel.WithMeterProvider(meters), advisoryotel.WithTracerProvider(tracers)}, opts...)...)
			e := advisory.Event{Kind: advisory.Acquired, Key: key, Label: "account", Waited: time.Millisecond, PID: 1}
			b.ReportAllocs()
			for b.Loop() {
				o.Observe(b.Context(), e)
			}
		})
	}
}
