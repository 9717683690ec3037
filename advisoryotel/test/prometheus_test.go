package otel_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisoryotel"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// newMetered returns a Locker whose metrics /metrics of the server shows.
func newMetered(t testing.TB, url string) (l *locker.Locker, server *httptest.Server) {
	t.Helper()
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		t.Fatal(err)
	}
	o := newObserver(t, advisoryotel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server = httptest.NewServer(mux)
	t.Cleanup(server.Close)
	l = newLocker(t, open(t, "pgx", url), advisory.WithObserver(o))
	t.Cleanup(o.RegisterStats(l))
	return l, server
}

func get(t testing.TB, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v\n%s", response.Status, err, text)
	}
	return string(text)
}

var lossesOfTheLeader = regexp.MustCompile(`\npostgresql_client_advisory_lock_losses_total\{.*_label="leader".*\} 1\n`)

// scraped returns the text of a program that has used locks in each way that a metric shows.
func scraped(t testing.TB) string {
	t.Helper()
	url := pgtest.URL(t)
	l, server := newMetered(t, url)
	other, _ := newMetered(t, url)
	account := advisory.Label("account")

	err := l.Do(t.Context(), key, func(context.Context) error { return nil }, account)
	if err != nil {
		t.Fatal(err)
	}
	theirs := lock(t, other, key)
	if _, ok, err := l.TryLock(t.Context(), key, account); ok || err != nil {
		t.Fatal(ok, err)
	}
	l.Lock(cancelled(t), key, account)
	unlock(t, theirs)
	lost := lock(t, l, key, advisory.Label("leader"))
	terminate(t, open(t, "postgres", url))
	receive(t, "the lock is lost", lost.Context().Done())
	eventually(t, "the loss is counted", func() bool {
		text := get(t, server.URL+"/metrics")
		return lossesOfTheLeader.MatchString(text) && strings.Contains(text, `outcome="lost"`)
	})
	held := lock(t, l, advisory.Int64(1))
	text := get(t, server.URL+"/metrics")
	unlock(t, held)
	return text
}

func TestPrometheusText(t *testing.T) {
	text := scraped(t)
	common := `db_system_name="postgresql",`
	scope := `otel_scope_name="github.com/pgadvisory/pgadvisory/advisoryotel",otel_scope_schema_url="",otel_scope_version="",`
	account := `postgresql_advisory_lock_label="account",postgresql_advisory_lock_mode="exclusive",postgresql_advisory_lock_outcome=`
	const metric = "postgresql_client_advisory_lock_"
	for _, want := range []string{
		"# TYPE " + metric + "attempts_total counter",
		metric + "attempts_total{" + common + scope + account + `"acquired"} 1`,
		metric + "attempts_total{" + common + scope + account + `"not_acquired"} 1`,
		metric + "attempts_total{" + common + `error_type="canceled",` + scope + account + `"error"} 1`,
		"# TYPE " + metric + "wait_duration_seconds histogram",
		metric + "wait_duration_seconds_count{" + common + scope + account + `"acquired"} 1`,
		metric + "wait_duration_seconds_bucket{" + common + scope + account + `"acquired",le="300"} 1`,
		"# TYPE " + metric + "hold_duration_seconds histogram",
		metric + "hold_duration_seconds_bucket{" + common + scope + account + `"released",le="86400"} 1`,
		"# TYPE " + metric + "losses_total counter",
		"# TYPE " + metric + "hold_count gauge",
		metric + "hold_count{" + common + strings.TrimSuffix(scope, ",") + "} 1",
		metric + "holder_count{" + common + strings.TrimSuffix(scope, ",") + "} 1",
		metric + "waiter_count{" + common + strings.TrimSuffix(scope, ",") + "} 0",
		metric + "session_count{" + common + strings.TrimSuffix(scope, ",") + "} 1",
		"# TYPE " + metric + "session_last_answer_age_seconds gauge",
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("the text lacks %s", want)
		}
	}
	for _, pattern := range []string{
		metric + `hold_duration_seconds_count\{.*error_type="(57P01|lost)".*_label="leader".*_outcome="lost"\} 1\n`,
		metric + `session_last_answer_age_seconds\{[^}]*\} [0-9.e-]+\n`,
	} {
		if !regexp.MustCompile(pattern).MatchString(text) {
			t.Errorf("the text has nothing like %s", pattern)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}
