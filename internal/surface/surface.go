// Package surface lists the exported names of packages, for tests that compare them with a golden
// list.
package surface

import (
	"bytes"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/pgadvisory/pgadvisory"

// Compare fails the test if the file does not list the exported names of the packages, which are paths
// below the module's. PGADVISORY_UPDATE_SURFACE=1 rewrites the file.
func Compare(t *testing.T, file string, packages ...string) {
	t.Helper()
	got, err := List(packages...)
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("PGADVISORY_UPDATE_SURFACE") != "" {
		if err := os.WriteFile(file, []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(text)), "\n")
	added, removed := without(got, want), without(want, got)
	if len(added)+len(removed) > 0 {
		t.Errorf("%s has other names (PGADVISORY_UPDATE_SURFACE=1 rewrites it):\n%s%s",
			file, marked("+ ", added), marked("- ", removed))
	}
}

// without returns the lines that are not among others.
func without(lines, others []string) (rest []string) {
	for _, line := range lines {
		if !slices.Contains(others, line) {
			rest = append(rest, line)
		}
	}
	return rest
}

func marked(mark string, lines []string) string {
	var b strings.Builder
	for _, line := range lines {
		fmt.Fprintln(&b, mark+line)
	}
	return b.String()
}

// List returns a line for each exported name of the packages, sorted.
func List(packages ...string) (lines []string, err error) {
	paths := make([]string, len(packages))
	for i, name := range packages {
		paths[i] = modulePath + "/" + name
	}
	built, err := ExportFiles(paths...)
	if err != nil {
		return nil, err
	}
	from := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(built[path]) })
	for i, path := range paths {
		pkg, err := from.Import(path)
		if err != nil {
			return nil, err
		}
		for _, line := range linesOf(pkg) {
			lines = append(lines, packages[i]+": "+line)
		}
	}
	slices.Sort(lines)
	return lines, nil
}

// ExportFiles has the go tool compile the packages, and returns the files with what they and those
// that they import export.
func ExportFiles(paths ...string) (map[string]string, error) {
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, paths...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%v: %w\n%s", cmd, err, &stderr)
	}
	files := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return files, nil
}

// linesOf returns a line for each exported name of pkg.
func linesOf(pkg *types.Package) (lines []string) {
	qualify := func(p *types.Package) string {
		if p == pkg {
			return ""
		}
		return p.Name()
	}
	for _, name := range pkg.Scope().Names() {
		object := pkg.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		switch o := object.(type) {
		case *types.Const:
			lines = append(lines, fmt.Sprintf("%s = %v", types.ObjectString(o, qualify), o.Val()))
		case *types.TypeName:
			lines = append(lines, linesOfType(o, qualify)...)
		default:
			lines = append(lines, types.ObjectString(o, qualify))
		}
	}
	return lines
}

// linesOfType returns lines for a type, its fields and its methods, promoted ones included. Of
// an interface it returns methods that are not exported too: they say who can implement it.
func linesOfType(o *types.TypeName, qualify types.Qualifier) []string {
	name := types.TypeString(o.Type(), qualify)
	if o.IsAlias() {
		return []string{fmt.Sprintf("type %s = %s", o.Name(), types.TypeString(types.Unalias(o.Type()), qualify))}
	}
	var lines []string
	line := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	signature := func(f types.Object) string {
		return strings.TrimPrefix(types.TypeString(f.Type(), qualify), "func")
	}
	switch u := o.Type().Underlying().(type) {
	case *types.Interface:
		line("type %s interface", name)
		for f := range u.ExplicitMethods() {
			line("type %s interface, method %s%s", name, f.Name(), signature(f))
		}
		for e := range u.EmbeddedTypes() {
			line("type %s interface, embeds %s", name, types.TypeString(e, qualify))
		}
		return lines
	case *types.Struct:
		line("type %s struct", name)
		for f := range u.Fields() {
			if f.Exported() {
				line("type %s struct, field %s %s", name, f.Name(), types.TypeString(f.Type(), qualify))
			}
		}
	default:
		line("type %s %s", name, types.TypeString(u, qualify))
	}
	value := types.NewMethodSet(o.Type())
	for m := range types.NewMethodSet(types.NewPointer(o.Type())).Methods() {
		f := m.Obj()
		if !f.Exported() {
			continue
		}
		receiver := name
		if value.Lookup(f.Pkg(), f.Name()) == nil {
			receiver = "*" + name
		}
		line("method (%s) %s%s", receiver, f.Name(), signature(f))
	}
	return lines
}
