package runbook

import (
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
