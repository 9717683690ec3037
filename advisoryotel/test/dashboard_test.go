package otel_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metricsql"
)

// A dashboard is what Grafana must find in the file.
type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Time          struct{ From, To string }
	Templating    struct {
		List []struct {
			Type, Name, Definition string
			Query                  json.RawMessage // a text, or an object with one
		}
	}
	Panels []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               struct{ Type, UID string }
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct{ RefID, Expr, LegendFormat string }
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile("../dashboard.json")
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// scrapeLabels are those that Prometheus adds.
var scrapeLabels = []string{"job", "instance"}

var (
	sample    = regexp.MustCompile(`(?m)^(\w+)(?:\{(.*)\})? \S+$`)
	labelName = regexp.MustCompile(`(\w+)="`)
)

// labelsOf returns the labels of each metric in the exposition format.
func labelsOf(text string) map[string]map[string]bool {
	found := map[string]map[string]bool{}
	for _, m := range sample.FindAllStringSubmatch(text, -1) {
		labels := found[m[1]]
		if labels == nil {
			labels = map[string]bool{}
			found[m[1]] = labels
		}
		for _, l := range labelName.FindAllStringSubmatch(m[2], -1) {
			labels[l[1]] = true
		}
	}
	return found
}

var grafana = strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$job", ".*", "$label", ".*")

// A query is what one expression asks for.
type query struct {
	metrics map[string]bool
	labels  map[string]bool // in matchers and in by (…), without le
}

func parse(t *testing.T, expr string) query {
	t.Helper()
	q := query{map[string]bool{}, map[string]bool{}}
	e, err := metricsql.Parse(grafana.Replace(expr))
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	metricsql.VisitAll(e, func(e metricsql.Expr) {
		switch e := e.(type) {
		case *metricsql.MetricExpr:
			for _, filters := range e.LabelFilterss {
				for _, f := range filters {
					if f.Label == "__name__" {
						q.metrics[f.Value] = true
					} else {
						q.labels[f.Label] = true
					}
				}
			}
		case *metricsql.AggrFuncExpr:
			for _, l := range e.Modifier.Args {
				q.labels[l] = true
			}
		}
	})
	return q
}

// check reports what the query asks for and no metric has.
func (q query) check(t *testing.T, expr string, exported map[string]map[string]bool) {
	t.Helper()
	if len(q.metrics) == 0 {
		t.Errorf("%s asks for no metric", expr)
	}
	for m := range q.metrics {
		if exported[m] == nil {
			t.Errorf("%s asks for %s, which is not exported", expr, m)
			continue
		}
		for l := range q.labels {
			if !exported[m][l] && !slices.Contains(scrapeLabels, l) {
				t.Errorf("%s asks for the label %s, which %s does not have", expr, l, m)
			}
		}
	}
}

var legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

// Each query of the dashboard asks for metrics and labels that exist, and each metric is on it.
func TestDashboardQueries(t *testing.T) {
	exported := labelsOf(scraped(t))
	d := readDashboard(t)
	shown := map[string]bool{}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			q := parse(t, target.Expr)
			q.check(t, target.Expr, exported)
			maps.Copy(shown, q.metrics)
			for _, l := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !q.labels[l[1]] {
					t.Errorf("%s: the legend has the label %s, by which %s does not sum", p.Title, l[1], target.Expr)
				}
			}
		}
	}
	values := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	for _, v := range d.Templating.List {
		if v.Type == "datasource" {
			continue
		}
		m := values.FindStringSubmatch(v.Definition)
		if m == nil {
			t.Errorf("the variable %s: %q", v.Name, v.Definition)
			continue
		}
		q := parse(t, m[1])
		q.labels[m[2]] = true
		q.check(t, v.Definition, exported)
		if !strings.Contains(string(v.Query), strings.ReplaceAll(m[0], `"`, `\"`)) {
			t.Errorf("the variable %s has the query %s and the definition %s", v.Name, v.Query, v.Definition)
		}
	}
	for m := range exported {
		name := m
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, ok := strings.CutSuffix(m, suffix); ok && exported[base+"_bucket"] != nil {
				name = base + "_bucket" // one of the three is enough
			}
		}
		if strings.HasPrefix(m, "postgresql_") && !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// The check finds what is wrong with a query.
func TestDashboardCheck(t *testing.T) {
	exported := map[string]map[string]bool{"m_total": {"outcome": true}}
	for expr, good := range map[string]bool{
		`sum by (outcome) (rate(m_total{job=~"$job"}[$__rate_interval]))`: true,
		`sum(m)`:                         false,
		`sum by (label) (m_total)`:       false,
		`m_total{label="x"}`:             false,
		`m_total / sum(other{job="x"})`:  false,
		`max by (instance) (m_total)`:    true,
		`sum(increase(m_total[1h])) > 1`: true,
		`vector(0)`:                      false,
	} {
		var missing testing.T
		q := parse(t, expr)
		q.check(&missing, expr, exported)
		if missing.Failed() == good {
			t.Errorf("%s: good: %v", expr, !good)
		}
	}
}

// What Grafana needs to import the file, and a reader to read it.
func TestDashboardForGrafana(t *testing.T) {
	d := readDashboard(t)
	if d.UID == "" || d.Title == "" || d.SchemaVersion < 36 || d.Time.From == "" || d.Time.To == "" {
		t.Errorf("%q %q %d %v", d.UID, d.Title, d.SchemaVersion, d.Time)
	}
	if len(d.Templating.List) == 0 || d.Templating.List[0].Type != "datasource" || d.Templating.List[0].Name != "datasource" {
		t.Error("the first variable is not the data source")
	}
	defined := map[string]bool{"__rate_interval": true, "__range": true}
	for _, v := range d.Templating.List {
		defined[v.Name] = true
	}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if p.ID == 0 || ids[p.ID] || p.Type == "" || p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
			t.Errorf("panel %d %q", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Datasource.Type != "prometheus" || p.Datasource.UID != "${datasource}" {
			t.Errorf("%s: %v", p.Title, p.Datasource)
		}
		if p.GridPos.W < 1 || p.GridPos.H < 1 || p.GridPos.X < 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s is at %v", p.Title, p.GridPos)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if cells[cell] != "" {
					t.Fatalf("%s covers %s", p.Title, cells[cell])
				}
				cells[cell] = p.Title
			}
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if target.RefID == "" || refs[target.RefID] || target.LegendFormat == "" {
				t.Errorf("%s: target %q", p.Title, target.RefID)
			}
			refs[target.RefID] = true
			for _, m := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
				if !defined[m[1]] {
					t.Errorf("%s: the variable %s is not defined", p.Title, m[1])
				}
			}
		}
	}
}
