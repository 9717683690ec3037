package otel_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisoryotel"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// A tee remembers the events of locks that it passes on.
type tee struct {
	to     advisory.Observer
	mu     sync.Mutex
	events []advisory.Event
}

func (o *tee) Observe(ctx context.Context, e advisory.Event) {
	o.to.Observe(ctx, e)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !e.Key.IsZero() {
		o.events = append(o.events, e)
	}
}

func (tel *telemetry) request(t testing.TB) (context.Context, trace.Span) {
	return tel.tracer.Tracer("request").Start(t.Context(), "request")
}

// ended returns the spans of locks.
func (tel *telemetry) ended() (spans []sdktrace.ReadOnlySpan) {
	for _, s := range tel.spans.Ended() {
		if strings.HasPrefix(s.Name(), "advisory_lock.") {
			spans = append(spans, s)
		}
	}
	return spans
}

func lasted(s sdktrace.ReadOnlySpan) time.Duration { return s.EndTime().Sub(s.StartTime()) }

// A call and a hold are children of the span in the ctx of the call, and last as long as the event says.
func TestSpansOfAHold(t *testing.T) {
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			tel := newTelemetry(t)
			events := &tee{to: tel}
			url := pgtest.URL(t)
			l := newLocker(t, open(t, driver, url), advisory.WithObserver(events))
			other := newLocker(t, open(t, driver, url))

			busy := lock(t, other, key)
			ctx, request := tel.request(t)
			got := make(chan advisory.Lock, 1)
			go func() {
				held, err := l.Lock(ctx, key, advisory.Label("account"))
				if err != nil {
					t.Error(err)
				}
				got <- held
			}()
			eventually(t, "it waits", func() bool { return l.Stats().Waiting == 1 })
			unlock(t, busy)
			held := receive(t, "it has the lock", got)
			if held == nil {
				t.Fatal("no lock")
			}
			request.End() // a hold may outlast it
			unlock(t, held)

			spans := tel.ended()
			if len(spans) != 2 || len(events.events) != 2 {
				t.Fatalf("%v, %v", spans, events.events)
			}
			acquire, hold := spans[0], spans[1]
			equal(t, "names", []string{acquire.Name(), hold.Name()}, []string{"advisory_lock.acquire account", "advisory_lock.hold account"})
			equal(t, "kinds", []trace.SpanKind{acquire.SpanKind(), hold.SpanKind()}, []trace.SpanKind{trace.SpanKindClient, trace.SpanKindInternal})
			for i, e := range events.events {
				s := spans[i]
				if s.Parent().SpanID() != request.SpanContext().SpanID() || s.SpanContext().TraceID() != request.SpanContext().TraceID() {
					t.Errorf("%s is not a child of the request", s.Name())
				}
				if want := e.Waited + e.Held; lasted(s) != want || want <= 0 {
					t.Errorf("%s lasted %v, want %v", s.Name(), lasted(s), want)
				}
				if s.Status().Code != codes.Unset {
					t.Errorf("%s has the status %v", s.Name(), s.Status())
				}
				if s.InstrumentationScope().Name != "github.com/pgadvisory/pgadvisory/advisoryotel" {
					t.Errorf("%s is of scope %v", s.Name(), s.InstrumentationScope())
				}
				if e.PID == 0 || !has(s, attribute.Int("postgresql.backend.pid", e.PID)) || !has(s, attribute.String("db.system.name", "postgresql")) {
					t.Errorf("%s has %v", s.Name(), s.Attributes())
				}
			}
			if hold.StartTime().Before(acquire.StartTime()) {
				t.Error("held before the call")
			}
			if !has(acquire, attribute.String("db.operation.name", "advisory_lock.acquire")) {
				t.Errorf("%v", acquire.Attributes())
			}
			for i, want := range []string{"outcome=acquired", "outcome=released"} {
				if got := of(spans[i].Attributes()); !strings.Contains(got, "label=account") || !strings.Contains(got, want) || strings.Contains(got, "key=") || strings.Contains(got, "local=") {
					t.Error(got)
				}
			}
		})
	}
}

func has(s sdktrace.ReadOnlySpan, want attribute.KeyValue) bool {
	for _, kv := range s.Attributes() {
		if kv == want {
			return true
		}
	}
	return false
}

func TestSpansOfCallsWithoutALock(t *testing.T) {
	tel, named := newTelemetry(t), newTelemetry(t, advisoryotel.WithKeysInSpans())
	url := pgtest.URL(t)
	busy := lock(t, newLocker(t, open(t, "postgres", url)), key)
	defer unlock(t, busy)
	for _, tel := range []*telemetry{tel, named} {
		l := newLocker(t, open(t, "postgres", url), advisory.WithObserver(tel))
		l.TryLock(t.Context(), key)
		l.Lock(t.Context(), key, advisory.MaxWait(time.Millisecond))
		l.Lock(cancelled(t), key)
		spans := tel.ended()
		if len(spans) != 3 {
			t.Fatalf("%v", spans)
		}
		for i, want := range []string{"not_acquired", "not_acquired", "error"} {
			s := spans[i]
			if s.Name() != "advisory_lock.acquire" || !has(s, attribute.String("postgresql.advisory_lock.outcome", want)) {
				t.Errorf("%s: %v", s.Name(), s.Attributes())
			}
			if failed := s.Status().Code == codes.Error; failed != (want == "error") || failed != has(s, attribute.String("error.type", "canceled")) {
				t.Errorf("%s: %v, %v", want, s.Status(), s.Attributes())
			}
			if has(s, attribute.String("postgresql.advisory_lock.key", "4820")) != (tel == named) {
				t.Errorf("%v", s.Attributes())
			}
			if text := s.Status().Description; strings.Contains(text, "4820") != (tel == named && want == "error") {
				t.Errorf("the status is %q", text)
			}
		}
		if s := spans[0]; s.Parent().IsValid() {
			t.Errorf("the parent is %v", s.Parent())
		}
	}
}

func TestSpanOfALoss(t *testing.T) {
	tel := newTelemetry(t)
	db := open(t, "pgx", pgtest.URL(t))
	l := newLocker(t, db, advisory.WithObserver(tel))
	ctx, request := tel.request(t)
	err := l.Do(ctx, key, func(ctx context.Context) error {
		terminate(t, db)
		<-ctx.Done()
		return nil
	})
	if !errors.Is(err, advisory.ErrLost) {
		t.Error(err)
	}
	eventually(t, "the loss has a span", func() bool { return len(tel.ended()) == 2 })
	s := tel.ended()[1]
	if s.Name() != "advisory_lock.hold" || s.Status().Code != codes.Error || s.Parent().SpanID() != request.SpanContext().SpanID() ||
		!has(s, attribute.String("postgresql.advisory_lock.outcome", "lost")) {
		t.Errorf("%s: %v, %v", s.Name(), s.Status(), s.Attributes())
	}
	state, code := "", ""
	for _, kv := range s.Attributes() {
		switch kv.Key {
		case "error.type":
			state = kv.Value.AsString()
		case "db.response.status_code":
			code = kv.Value.AsString()
		}
	}
	if state != "57P01" && state != "lost" || (code == "") != (state == "lost") {
		t.Errorf("error.type %q, db.response.status_code %q", state, code)
	}
}

// The hand-over inside the process is marked.
func TestSpanOfAHandOver(t *testing.T) {
	tel := newTelemetry(t)
	l := newLocker(t, open(t, "postgres", pgtest.URL(t)), advisory.WithObserver(tel))
	a, b := lock(t, l, key, advisory.Shared), lock(t, l, key, advisory.Shared)
	unlock(t, a)
	unlock(t, b)
	var local []bool
	for _, s := range tel.ended() {
		local = append(local, has(s, attribute.Bool("postgresql.advisory_lock.local", true)))
	}
	equal(t, "local", local, []bool{false, true, true, false})
}

func TestNoSpanWithoutASampledParent(t *testing.T) {
	tel := newTelemetry(t)
	never := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(tel.spans), sdktrace.WithSampler(sdktrace.NeverSample()))
	l := newLocker(t, open(t, "postgres", pgtest.URL(t)), advisory.WithObserver(newObserver(t, advisoryotel.WithTracerProvider(never))))
	unlock(t, lock(t, l, key))
	if spans := tel.ended(); len(spans) != 0 {
		t.Errorf("%v", spans)
	}
}

// Unlock of sqlconn does not know when the lock was acquired.
func TestNoSpanOfAHoldOfUnknownDuration(t *testing.T) {
	tel := newTelemetry(t)
	conn, err := open(t, "postgres", pgtest.URL(t)).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if ok, err := sqlconn.TryLock(t.Context(), conn, key, advisory.WithObserver(tel)); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := sqlconn.Unlock(t.Context(), conn, key, advisory.WithObserver(tel)); err != nil {
		t.Error(err)
	}
	spans := tel.ended()
	if len(spans) != 1 || spans[0].Name() != "advisory_lock.acquire" {
		t.Errorf("%v", spans)
	}
	if m := tel.metrics(t)["hold.duration"]; m.Data != nil {
		t.Errorf("%v", m)
	}
}

type errorThatPanics struct{ error }

// An error whose text cannot be had, and durations of a clock that was set back.
func TestSpansOfOddEvents(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	reader := metric.NewManualReader()
	o := newObserver(t, advisoryotel.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))),
		advisoryotel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))), advisoryotel.WithKeysInSpans())
	handled(t)
	for _, e := range []advisory.Event{
		{Kind: advisory.NotAcquired, Key: key, Err: errorThatPanics{}},
		{Kind: advisory.Acquired, Key: key, Waited: -time.Hour},
		{Kind: 99, Key: key, Mode: 99},
	} {
		o.Observe(t.Context(), e)
	}
	if started, ended := len(recorder.Started()), len(recorder.Ended()); started != ended {
		t.Errorf("%d spans have begun and %d ended", started, ended)
	}
	for _, s := range recorder.Ended() {
		if s.EndTime().Before(s.StartTime()) {
			t.Errorf("%s ends before it begins", s.Name())
		}
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			h, ok := m.Data.(metricdata.Histogram[float64])
			for i := 0; ok && i < len(h.DataPoints); i++ {
				if h.DataPoints[i].Sum < 0 {
					t.Errorf("%s: sum %v", m.Name, h.DataPoints[i].Sum)
				}
			}
		}
	}
}
