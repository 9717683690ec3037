package recipes_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var goFence = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// Each block of Go on the page is code of these tests, word for word, so it compiles and runs.
func TestPageHasTheCodeThatRuns(t *testing.T) {
	page, err := os.ReadFile("../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, "../orm/orm_test.go")
	var code strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.WriteString(unindented(string(text)))
	}
	fences := goFence.FindAllStringSubmatch(string(page), -1)
	if len(fences) < 9 {
		t.Errorf("%d blocks of Go", len(fences))
	}
	for _, fence := range fences {
		if !strings.Contains(code.String(), "\n"+unindented(fence[1])) {
			t.Errorf("no test has this:\n%s", fence[1])
		}
	}
	if lines := strings.Count(string(page), "\n"); lines > 450 {
		t.Errorf("the page has %d lines", lines)
	}
}

// unindented returns text without the white space at both ends of its lines.
func unindented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}
