package runbook

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const document = "../../docs/runbook.md"

// Every statement and command of the runbook works, in its order, and prints what the document
// says that it prints, but for pids and times.
func TestRunbook(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("psql"); err != nil {
		t.Skip("needs psql, of the package postgresql-client")
	}
	blocks := Blocks(string(text))
	if all := strings.Count(string(text), "\n```sql\n") + strings.Count(string(text), "\n```sh\n"); len(blocks) != all || all == 0 {
		t.Fatalf("of %d blocks %d are followed by what they print", all, len(blocks))
	}
	scene, err := Set(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer scene.Close()
	tools, err := NewTools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tools.Close()
	for _, b := range blocks {
		out, err := tools.Run(t.Context(), scene.URL, b)
		if err != nil {
			t.Errorf("%s: %v\n%s%s", b.Name(), err, b.Text, out)
		} else if Shape(out) != Shape(b.Output) {
			t.Errorf("%s:\n%sprints\n%sand not, as the document has it,\n%sRun: go run ./examples/incident -document docs/runbook.md", b.Name(), b.Text, out, b.Output)
		}
	}
}

// A server in a container has pids of two digits, which may be a part of a key.
func TestShapeOfSmallPIDs(t *testing.T) {
	const text = " %s | 12:34 | -77 | {%s,%s} | waits for pid %s, holds 12:34\n"
	document := fmt.Sprintf(text, "21464", "21464", "21472", "21464")
	for _, pids := range [][3]string{{"34", "34", "38"}, {"12", "12", "77"}} {
		if out := fmt.Sprintf(text, pids[0], pids[1], pids[2], pids[0]); Shape(out) != Shape(document) {
			t.Errorf("%s\n%s", Shape(out), Shape(document))
		}
	}
	if other := strings.ReplaceAll(document, "12:34", "12:35"); Shape(other) == Shape(document) {
		t.Errorf("another key makes no difference: %s", Shape(other))
	}
}

func TestShape(t *testing.T) {
	const a = " pid  |  key  |  since\n------+-------+---\n 1234 |  4820 | 00:00:09.9\n"
	for other, same := range map[string]bool{
		" pid   | key | since\n-----+--+---\n 31234 | 4820 | 00:01:19\n":    true,
		" pid   | key | since\n-----+--+---\n 31234 | 4821 | 00:01:19\n":    false,
		" pid   | key | since\n-----+--+---\n 31234 | 4820 | \n":            false,
		" pid   | key | since\n-----+--+---\n 31234 | 4820 | 00:01:19\nx\n": false,
	} {
		if (Shape(a) == Shape(other)) != same {
			t.Errorf("%s\n%s", Shape(a), Shape(other))
		}
	}
}
