package otel_test

import (
	"database/sql"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisoryotel"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// newMeteredLocker returns a Locker whose metrics are at /metrics.
func newMeteredLocker(db *sql.DB, mux *http.ServeMux) (*locker.Locker, error) {
	reader, err := prometheus.New() // of go.opentelemetry.io/otel/exporters/prometheus
	if err != nil {
		return nil, err
	}
	meters := metric.NewMeterProvider(metric.WithReader(reader)) // of otel/sdk/metric
	mux.Handle("/metrics", promhttp.Handler())
	observer, err := advisoryotel.New(advisoryotel.WithMeterProvider(meters))
	if err != nil {
		return nil, err
	}
	l := locker.New(db, advisory.WithObserver(observer))
	observer.RegisterStats(l)
	return l, nil
}

func TestRecipe(t *testing.T) {
	mux := http.NewServeMux()
	l, err := newMeteredLocker(open(t, "postgres", pgtest.URL(t)), mux)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	server := httptest.NewServer(mux)
	defer server.Close()
	defer unlock(t, lock(t, l, key, advisory.Label("account")))
	text := get(t, server.URL+"/metrics")
	for _, metric := range []string{"attempts_total", "session_last_answer_age_seconds"} {
		if !strings.Contains(text, "\npostgresql_client_advisory_lock_"+metric+"{") {
			t.Errorf("no %s in\n%s", metric, text)
		}
	}
}

// The code in the page's section is that of the test above, and the names of metrics in it exist.
func TestPageHasTheCodeThatRuns(t *testing.T) {
	page, err := os.ReadFile("../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("recipe_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## Metrics and traces\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?ms)^```\n(.*?)^```$").FindAllStringSubmatch(section, -1)
	if !found || len(blocks) != 1 {
		t.Fatalf("%d blocks in %q", len(blocks), section)
	}
	if !strings.Contains(string(code), "\n"+blocks[0][1]) {
		t.Errorf("no test has this:\n%s", blocks[0][1])
	}
	exported := labelsOf(scraped(t))
	names := regexp.MustCompile(`\bpostgresql_client_\w+`).FindAllString(section, -1)
	if len(names) == 0 {
		t.Error("the section names no metric")
	}
	for _, name := range names {
		if exported[name] == nil {
			t.Errorf("the section names %s, which is not exported", name)
		}
	}
}
