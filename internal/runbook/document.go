package runbook

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// A Block is a fenced block of the document that is run. The block of text after it is its output.
type Block struct {
	Language string // sql, for psql; or sh
	Text     string
	Output   string
	line     int
	from, to int // the position of Output in the document
}

var fence = regexp.MustCompile("(?ms)^```(sql|sh)\n(.*?)^```\n\n```text\n(.*?)^```\n")

// Blocks returns the blocks that are run, in their order.
func Blocks(document string) (blocks []Block) {
	for _, m := range fence.FindAllStringSubmatchIndex(document, -1) {
		blocks = append(blocks, Block{
			Language: document[m[2]:m[3]], Text: document[m[4]:m[5]], Output: document[m[6]:m[7]],
			line: strings.Count(document[:m[0]], "\n") + 1, from: m[6], to: m[7],
		})
	}
	return blocks
}

// Name returns a name for messages.
func (b Block) Name() string { return fmt.Sprintf("line %d", b.line) }

// Tools are the programs that run blocks.
type Tools struct {
	psql string
	dir  string // contains pgadvisory
}

// NewTools finds psql, and builds pgadvisory from this module.
func NewTools(ctx context.Context) (*Tools, error) {
	psql, err := exec.LookPath("psql")
	if err != nil {
		return nil, fmt.Errorf("psql is needed: %w", err)
	}
	dir, err := os.MkdirTemp("", "pgadvisory-runbook-")
	if err != nil {
		return nil, err
	}
	t := &Tools{psql: psql, dir: dir}
	out, err := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, "pgadvisory"), "github.com/pgadvisory/pgadvisory/cmd/pgadvisory").CombinedOutput()
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("build pgadvisory: %w: %s", err, out)
	}
	return t, nil
}

// Close removes what NewTools built.
func (t *Tools) Close() error { return os.RemoveAll(t.dir) }

// Run runs a block in the database at url and returns its output and its error messages. It fails
// if the block does.
func (t *Tools) Run(ctx context.Context, url string, b Block) (string, error) {
	cmd := exec.CommandContext(ctx, t.psql, "-X", "-v", "ON_ERROR_STOP=1", "-P", "pager=off", "-d", url, "-f", "-")
	if b.Language == "sh" {
		cmd = exec.CommandContext(ctx, "sh", "-c", b.Text)
	}
	cmd.Stdin = strings.NewReader(b.Text)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+url, "PATH="+t.dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var lines []string
	for line := range strings.Lines(out.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n") + "\n", err
}

// Fill returns the document with new outputs.
func Fill(document string, outputs []string) (string, error) {
	blocks := Blocks(document)
	if len(blocks) != len(outputs) {
		return "", fmt.Errorf("the document has %d blocks, but there are %d outputs", len(blocks), len(outputs))
	}
	var b strings.Builder
	at := 0
	for i, block := range blocks {
		b.WriteString(document[at:block.from])
		b.WriteString(outputs[i])
		at = block.to
	}
	b.WriteString(document[at:])
	return b.String(), nil
}

var (
	moments   = regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d(:?\d\d)?)?`)
	intervals = regexp.MustCompile(`\d\d:\d\d:\d\d(\.\d+)?`)
	addresses = regexp.MustCompile(`\b\d+(\.\d+){3}(:\d+)?\b`)
	numbers   = regexp.MustCompile(`\b\d{15,}\b`)
	durations = regexp.MustCompile(`\b\d+(\.\d+)?(µs|ms|s|m|h)\b`)
	keyOrPID  = regexp.MustCompile(`12:34|-77|4820|\b\d{2,7}\b`)
	spaces    = regexp.MustCompile(`[ \t]+`)
	rules     = regexp.MustCompile(`-{2,}`)
)

// Shape returns an output without the parts that differ between runs: pids, times, and widths of
// columns. The keys of the scene stay, but a part of one may be a pid.
func Shape(output string) string {
	for _, r := range []struct {
		what *regexp.Regexp
		is   string
	}{{moments, "MOMENT"}, {addresses, "ADDRESS"}, {intervals, "TIME"}, {numbers, "NUMBER"}, {durations, "TIME"}, {spaces, " "}, {rules, "--"}} {
		output = r.what.ReplaceAllString(output, r.is)
	}
	return keyOrPID.ReplaceAllStringFunc(output, func(n string) string {
		switch n {
		case "12:34", "-77", "4820":
			return n
		}
		return "N"
	})
}
