package pgtest

import (
	"os/exec"
	"strings"
	"testing"
)

// What starts servers compiles lib/pq and nothing else from outside: Docker's client
// brings forty modules, and the embedded server an HTTP client and xz.
func TestProgramsNeedADriverAlone(t *testing.T) {
	for _, program := range []string{"examples/reconcile", "examples/incident", "internal/pgtest/probe"} {
		out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", modulePath+"/"+program).Output()
		if err != nil {
			t.Fatal(err)
		}
		for path := range strings.FieldsSeq(string(out)) {
			if path != modulePath && path != "github.com/lib/pq" {
				t.Fatalf("%s compiles %s", program, path)
			}
		}
	}
}
