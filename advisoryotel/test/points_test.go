package otel_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

func cutPrefix(name string) (string, bool) { return strings.CutPrefix(name, prefix) }

// of returns attributes in one line, in the order of their names and without what all have in common:
// "label=account mode=exclusive outcome=acquired".
func of(attrs []attribute.KeyValue) string {
	var words []string
	for _, kv := range attrs {
		if kv.Key != "db.system.name" {
			words = append(words, strings.TrimPrefix(string(kv.Key), "postgresql.advisory_lock.")+"="+kv.Value.String())
		}
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func ofSet(t testing.TB, set attribute.Set) string {
	t.Helper()
	if v, _ := set.Value("db.system.name"); v.AsString() != "postgresql" {
		t.Errorf("db.system.name is %q", v.String())
	}
	return of(set.ToSlice())
}

// counts returns the values of a sum or gauge, or the counts of a histogram, by attributes.
func counts(t testing.TB, m metricdata.Metrics) map[string]float64 {
	t.Helper()
	found := map[string]float64{}
	switch d := m.Data.(type) {
	case nil:
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			found[ofSet(t, p.Attributes)] = float64(p.Value)
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			found[ofSet(t, p.Attributes)] = p.Value
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			found[ofSet(t, p.Attributes)] = float64(p.Count)
		}
	default:
		t.Fatalf("%s is a %T", m.Name, d)
	}
	return found
}

func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}
