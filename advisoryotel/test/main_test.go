// Package otel_test runs advisoryotel with OpenTelemetry's SDK, with Prometheus and on a real server.
//
// It is a module of its own, so that users of advisoryotel require OpenTelemetry's API alone.
package otel_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisoryotel"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// enough is more than anything here takes on a busy machine.
const enough = 30 * time.Second

var key = advisory.Int64(4820)

var drivers = []string{"postgres", "pgx"}

// A telemetry is an Observer, and what it has recorded.
type telemetry struct {
	*advisoryotel.Observer
	reader *sdkmetric.ManualReader
	spans  *tracetest.SpanRecorder
	tracer *sdktrace.TracerProvider
	meters *sdkmetric.MeterProvider
}

func newTelemetry(t testing.TB, opts ...advisoryotel.Option) *telemetry {
	t.Helper()
	tel := &telemetry{reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	tel.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(tel.reader))
	tel.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(tel.spans))
	tel.Observer = newObserver(t, append([]advisoryotel.Option{
		advisoryotel.WithMeterProvider(tel.meters), advisoryotel.WithTracerProvider(tel.tracer),
	}, opts...)...)
	return tel
}

func newObserver(t testing.TB, opts ...advisoryotel.Option) *advisoryotel.Observer {
	t.Helper()
	o, err := advisoryotel.New(opts...)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func open(t testing.TB, driver, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func newLocker(t testing.TB, db *sql.DB, opts ...locker.Option) *locker.Locker {
	t.Helper()
	l := locker.New(db, opts...)
	t.Cleanup(func() { l.Close() })
	return l
}

func lock(t testing.TB, l *locker.Locker, k advisory.Key, opts ...advisory.LockerOption) advisory.Lock {
	t.Helper()
	held, err := l.Lock(t.Context(), k, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func unlock(t testing.TB, held advisory.Lock) {
	t.Helper()
	if err := held.Unlock(); err != nil {
		t.Error(err)
	}
}

// terminate ends the sessions that hold advisory locks in the database of db.
func terminate(t testing.TB, db *sql.DB) {
	t.Helper()
	var n int
	err := db.QueryRowContext(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM
		(SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS holders`).Scan(&n)
	if err != nil || n == 0 {
		t.Fatalf("%d sessions ended: %v", n, err)
	}
}

func cancelled(t testing.TB) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(enough); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came to pass that %s", what)
		}
	}
}

func receive[T any](t testing.TB, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(enough):
		t.Fatalf("it never came to pass that %s", what)
	}
	return v
}

const prefix = "postgresql.client.advisory_lock."

// metrics returns what the reader collects, by name without the prefix.
func (tel *telemetry) metrics(t testing.TB) map[string]metricdata.Metrics {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := tel.reader.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	found := map[string]metricdata.Metrics{}
	for _, scope := range rm.ScopeMetrics {
		if scope.Scope.Name != "github.com/pgadvisory/pgadvisory/advisoryotel" {
			t.Errorf("scope %q", scope.Scope.Name)
		}
		for _, m := range scope.Metrics {
			name, ok := cutPrefix(m.Name)
			if !ok {
				t.Errorf("metric %q", m.Name)
			}
			found[name] = m
		}
	}
	return found
}
