package house_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
)

const modulePath = "github.com/pgadvisory/pgadvisory"

// A program that imports this module must not come to require a driver, a test
// library or anything else with it: neither in its go.mod nor in its go.sum, and
// least of all in its binary. Nothing may even have to be fetched, so the go tool
// gets an empty module cache here and no proxy.
//
// The tests beside these packages, and beside what they import, count as well:
// go mod tidy loads them. Those that need a library or a server live here.
func TestUsersOfTheModuleRequireTheStandardLibraryAlone(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	packages := userPackages(t, root)
	dir := t.TempDir()
	goTool := func(args ...string) string {
		t.Helper()
		return harness.RunGo(t, dir, []string{
			"GOPROXY=off", "GOFLAGS=-mod=mod", "GOWORK=off", "GOTOOLCHAIN=local", "GOMODCACHE=" + filepath.Join(dir, "cache"),
		}, args...)
	}

	var program strings.Builder
	fmt.Fprintln(&program, "package main")
	for _, p := range packages {
		fmt.Fprintf(&program, "import _ %q\n", p)
	}
	fmt.Fprintln(&program, "func main() {}")
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	goTool("mod", "init", "user.example/program")
	goTool("mod", "edit", "-require="+modulePath+"@v1.0.0", "-replace="+modulePath+"="+root)
	goTool("mod", "tidy")
	goTool("build", "-o", filepath.Join(dir, "program"), ".")

	if sum, err := os.ReadFile(filepath.Join(dir, "go.sum")); err == nil && len(sum) > 0 {
		t.Errorf("go.sum has gained:\n%s", sum)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	var mod struct{ Require []struct{ Path string } }
	if err := json.Unmarshal([]byte(goTool("mod", "edit", "-json")), &mod); err != nil {
		t.Fatal(err)
	}
	if len(mod.Require) != 1 || mod.Require[0].Path != modulePath {
		t.Errorf("go.mod requires %v, want %s alone", mod.Require, modulePath)
	}
	for p := range strings.FieldsSeq(goTool("list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")) {
		if p != "user.example/program" && !strings.HasPrefix(p, modulePath+"/") {
			t.Errorf("the program contains %s", p)
		}
	}
}

// userPackages returns those packages of the module that are there for users.
func userPackages(t *testing.T, root string) []string {
	var found []string
	for p := range strings.FieldsSeq(harness.RunGo(t, root, nil, "list", "./...")) {
		switch strings.TrimPrefix(p, modulePath+"/") {
		case "advisory", "advisory/inprocess", "advisory/locktest", "sqlconn", "locker", "adapt", "xact", "inspect", "interop":
			found = append(found, p)
		}
	}
	if !slices.Contains(found, modulePath+"/advisory") {
		t.Fatalf("no package advisory among %q", found)
	}
	t.Logf("%q", found)
	return found
}
