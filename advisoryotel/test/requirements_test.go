package otel_test

import (
	"os/exec"
	"strings"
	"testing"
)

func goTool(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %q: %v", args, err)
	}
	return string(out)
}

// A user of advisoryotel gets OpenTelemetry's API with it: no SDK, no exporter, no driver. That holds for
// the tests in its folder as well, which go mod tidy loads.
func TestUsersRequireTheAPIAlone(t *testing.T) {
	packages := strings.Fields(goTool(t, "list", "-deps", "-test", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "."))
	if len(packages) < 5 {
		t.Fatalf("only %q", packages)
	}
	for _, p := range packages {
		for _, foreign := range []string{"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "prometheus", "lib/pq", "jackc", "google.golang.org"} {
			if strings.Contains(p, foreign) {
				t.Errorf("advisoryotel contains %s", p)
			}
		}
	}
	for m := range strings.FieldsSeq(goTool(t, "list", "-m", "-f", "{{if not .Indirect}}{{.Path}}{{end}}", "all")) {
		switch m {
		case "github.com/pgadvisory/pgadvisory", "github.com/pgadvisory/pgadvisory/advisoryotel",
			"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/metric", "go.opentelemetry.io/otel/trace":
		default:
			t.Errorf("advisoryotel requires %s", m)
		}
	}
}
