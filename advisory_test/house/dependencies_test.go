package house_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	requirement = regexp.MustCompile(`(?m)^(?:require )?\s*([\w.-]+\.[\w./-]+) v\S+$`) // not "// indirect"
	reason      = regexp.MustCompile(`(?m)^\| ([\w.-]+\.[\w./-]+) \| \S`)
	versioned   = regexp.MustCompile(`([\w.-]+\.[\w./-]+)@v\d`)
)

// docs/dependencies.md has a reason for each module that a go.mod requires directly and for each tool
// of the Makefile, and for no other.
func TestEachDependencyHasItsReason(t *testing.T) {
	required := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch name := filepath.Base(path); {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || name == ".git"):
			return filepath.SkipDir
		case name == "go.mod" || name == "older.mod":
			for _, m := range requirement.FindAllStringSubmatch(readFile(t, path), -1) {
				required[m[1]] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range versioned.FindAllStringSubmatch(readFile(t, "../../Makefile"), -1) {
		required[m[1]] = true
	}
	delete(required, "github.com/pgadvisory/pgadvisory")
	if len(required) < 15 {
		t.Fatalf("only %d requirements were found", len(required))
	}
	reasons := map[string]bool{}
	for _, m := range reason.FindAllStringSubmatch(readFile(t, "../../docs/dependencies.md"), -1) {
		reasons[m[1]] = true
	}
	for m := range required {
		if !reasons[m] {
			t.Errorf("%s is required without a reason in docs/dependencies.md", m)
		}
	}
	for m := range reasons {
		if !required[m] {
			t.Errorf("docs/dependencies.md has %s, which nothing requires", m)
		}
	}
}

var (
	makeTarget  = regexp.MustCompile(`(?m)^([a-z]+):`)
	makeCommand = regexp.MustCompile(`\bmake ([a-z]+)`)
	scriptName  = regexp.MustCompile(`\bscripts/[\w.-]+`)
	moduleLine  = regexp.MustCompile(`(?m)^      - /(\w\S*)$`)
)

// The files of a release name targets, scripts and modules that exist.
func TestReleaseFiles(t *testing.T) {
	var targets []string
	for _, m := range makeTarget.FindAllStringSubmatch(readFile(t, "../../Makefile"), -1) {
		targets = append(targets, m[1])
	}
	commands := 0
	for _, path := range []string{".github/workflows/test.yml", ".github/workflows/release.yml", ".goreleaser.yaml"} {
		text := readFile(t, filepath.Join("../..", path))
		for line := range strings.Lines(text) {
			for _, m := range makeCommand.FindAllStringSubmatch(line, -1) {
				if commands++; !slices.Contains(targets, m[1]) && strings.Contains(line, "run:") {
					t.Errorf("%s runs make %s, which the Makefile does not have", path, m[1])
				}
			}
			for _, name := range scriptName.FindAllString(line, -1) {
				commands++
				if info, err := os.Stat(filepath.Join("../..", name)); err != nil || info.Mode()&0o111 == 0 {
					t.Errorf("%s runs %s: %v", path, name, err)
				}
			}
		}
	}
	if commands < 7 {
		t.Errorf("only %d commands were found", commands)
	}

	var updated []string
	for _, m := range moduleLine.FindAllStringSubmatch(readFile(t, "../../.github/dependabot.yml"), -1) {
		updated = append(updated, m[1])
	}
	var nested []string
	for _, pattern := range []string{"../../*/go.mod", "../../*/*/go.mod"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			nested = append(nested, strings.TrimPrefix(filepath.ToSlash(filepath.Dir(f)), "../../"))
		}
	}
	slices.Sort(nested)
	slices.Sort(updated)
	if !slices.Equal(updated, nested) {
		t.Errorf("dependabot.yml has the nested modules %q, there are %q", updated, nested)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
