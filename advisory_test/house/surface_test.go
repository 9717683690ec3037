package house_test

import (
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// surfaceFile has a line for each name that the packages export.
const surfaceFile = "testdata/surface.txt"

// TestSurfaceIsAsListed shows what a change adds to the names that users can write, and what it
// takes away. PGADVISORY_UPDATE_SURFACE=1 rewrites the list.
func TestSurfaceIsAsListed(t *testing.T) {
	got := surface(t, "advisory", "advisory/inprocess", "advisory/locktest", "sqlconn", "xact", "locker", "adapt", "inspect", "interop")
	if os.Getenv("PGADVISORY_UPDATE_SURFACE") != "" {
		if err := os.WriteFile(surfaceFile, []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(surfaceFile)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(text)), "\n")
	added, removed := without(got, want), without(want, got)
	if len(added)+len(removed) > 0 {
		t.Errorf("%s has other names (PGADVISORY_UPDATE_SURFACE=1 rewrites it):\n%s%s",
			surfaceFile, marked("+ ", added), marked("- ", removed))
	}
}

func TestSurfaceShowsEachChange(t *testing.T) {
	listed, now := []string{"a", "b", "c"}, []string{"a", "c", "d"}
	if added := without(now, listed); !slices.Equal(added, []string{"d"}) {
		t.Errorf("added: %q", added)
	}
	if removed := without(listed, now); !slices.Equal(removed, []string{"b"}) {
		t.Errorf("removed: %q", removed)
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

// surface returns a line for each exported name of the packages, sorted.
func surface(t *testing.T, packages ...string) (lines []string) {
	t.Helper()
	built, err := exportFiles()
	if err != nil {
		t.Fatal(err)
	}
	from := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(built[path]) })
	for _, name := range packages {
		pkg, err := from.Import(modulePath + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range surfaceOf(pkg) {
			lines = append(lines, name+": "+line)
		}
	}
	slices.Sort(lines)
	return lines
}

func surfaceOf(pkg *types.Package) (lines []string) {
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
			lines = append(lines, surfaceOfType(o, qualify)...)
		default:
			lines = append(lines, types.ObjectString(o, qualify))
		}
	}
	return lines
}

// surfaceOfType returns lines for a type, its fields and its methods, promoted ones included. Of
// an interface it returns methods that are not exported too: they say who can implement it.
func surfaceOfType(o *types.TypeName, qualify types.Qualifier) []string {
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
