package recipes_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	fence  = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	others = regexp.MustCompile(`\b(pglock|ctxlock)\.`) // modules that no test requires: the tests have their shape
)

// Each block of Go on the page is code of the tests here, or in the modules that require the tools,
// word for word, so it compiles and runs. The blocks of code that need another module are not marked
// as Go.
func TestPageHasTheCodeThatRuns(t *testing.T) {
	page, err := os.ReadFile("../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, pattern := range []string{"../*/*_test.go", "../../advisoryotel/test/*_test.go"} {
		some, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, some...)
	}
	var code strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.WriteString(unindented(string(text)))
	}
	blocks := slices.DeleteFunc(fence.FindAllStringSubmatch(string(page), -1), func(m []string) bool {
		return m[1] != "" && m[1] != "go" || others.MatchString(m[2])
	})
	if len(blocks) < 18 {
		t.Errorf("%d blocks of Go", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(code.String(), "\n"+unindented(block[2])) {
			t.Errorf("no test has this:\n%s", block[2])
		}
	}
	if lines := strings.Count(string(page), "\n"); lines > 480 {
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
