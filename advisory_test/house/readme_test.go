package house_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

var (
	// goBlock is a block of Go in Markdown, and codeBlock is code of any language.
	goBlock   = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	codeBlock = regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]+`")
)

// What a reader copies from the README and the pages of docs compiles, is formatted, and the
// program in it runs.
func TestReadme(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks [][][]byte
	for _, page := range append(pages, "../../README.md") {
		if filepath.Base(page) == "recipes.md" { // its code is that of the tests in advisory_test/recipes
			continue
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, goBlock.FindAllSubmatch(text, -1)...)
	}
	if len(blocks) < 9 {
		t.Fatalf("%d blocks of Go", len(blocks))
	}
	programs := 0
	for _, block := range blocks {
		src := block[1]
		if formatted, err := format.Source(src); err != nil || !bytes.Equal(formatted, src) {
			t.Errorf("not as gofmt has it (%v):\n%s", err, src)
			continue
		}
		program := bytes.HasPrefix(src, []byte("package main\n"))
		if !program {
			src = around(t, src)
		}
		file := filepath.Join(t.TempDir(), "main.go")
		binary := filepath.Join(t.TempDir(), "main")
		if err := os.WriteFile(file, src, 0o666); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, file).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s\n%s", err, out, src)
			continue
		}
		if !program {
			continue
		}
		programs++
		cmd := exec.CommandContext(t.Context(), binary)
		cmd.Env = append(os.Environ(), "DATABASE_URL="+pgtest.URL(t))
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "ran here: true") {
			t.Errorf("%v\n%s", err, out)
		}
	}
	if programs != 1 {
		t.Errorf("%d whole programs", programs)
	}
}

// The files that the documentation points to are there.
func TestLinksOfTheDocumentation(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	for _, file := range append(files, "../../README.md", "../../CHANGELOG.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("\n<<<<<<< ")) || bytes.Contains(text, []byte("\n>>>>>>> ")) {
			t.Errorf("%s: a conflict of a merge is left", file)
		}
		for _, l := range link.FindAllSubmatch(codeBlock.ReplaceAll(text, nil), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), string(l[1]))); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

// Each guarantee names tests that show it, and they are there.
func TestGuaranteesNameTests(t *testing.T) {
	text, err := os.ReadFile("../../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	var sources bytes.Buffer
	for _, pattern := range []string{"../*/*_test.go", "../../advisory/*_test.go", "../../internal/*/*_test.go", "../../locker/*_test.go", "../../sqlconn/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sources.Write(source)
		}
	}
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, _, _ := strings.Cut(section, "\n")
		named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(section, -1)
		if len(named) == 0 {
			t.Errorf("%s: no test", title)
		}
		for _, n := range named {
			if !strings.Contains(sources.String(), "\nfunc "+n[1]+"(") {
				t.Errorf("%s: there is no %s", title, n[1])
			}
		}
	}
}

// around puts statements into a program.
func around(t *testing.T, statements []byte) []byte {
	t.Helper()
	const parameters = `ctx context.Context, url, id string, db *sql.DB, dbx *sqlx.DB, conn *sql.Conn, tx *sql.Tx,
		key advisory.Key, keys []advisory.Key, l *locker.Locker,
		work func(context.Context, *sql.Conn) error, job func(context.Context) error`
	body := fmt.Sprintf("func _(%s) {\n{\n%s\n", parameters, statements)

	var src bytes.Buffer
	fmt.Fprintln(&src, "package main")
	for name, path := range map[string]string{
		"context": "context", "sql": "database/sql", "errors": "errors", "fmt": "fmt", "log": "log", "time": "time",
		"http": "net/http", "os": "os",
		"inprocess": modulePath + "/advisory/inprocess",
		"inspect":   modulePath + "/inspect",
		"sqlx":      "github.com/jmoiron/sqlx",
		"advisory":  modulePath + "/advisory", "sqlconn": modulePath + "/sqlconn", "xact": modulePath + "/xact",
		"locker": modulePath + "/locker",
	} {
		if strings.Contains(body, name+".") {
			fmt.Fprintf(&src, "import %q\n", path)
		}
	}
	fmt.Fprint(&src, body)
	for _, name := range declared(t, statements) {
		fmt.Fprintf(&src, "_ = %s\n", name)
	}
	fmt.Fprintln(&src, "}\n}\nfunc main() {}")
	return src.Bytes()
}

// declared returns the variables that statements leave behind, perhaps unused.
func declared(t *testing.T, statements []byte) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", fmt.Sprintf("package p; func _() {\n%s\n}", statements), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range file.Decls[0].(*ast.FuncDecl).Body.List {
		if a, ok := s.(*ast.AssignStmt); ok && a.Tok == token.DEFINE {
			for _, v := range a.Lhs {
				if id, ok := v.(*ast.Ident); ok && id.Name != "_" {
					names = append(names, id.Name)
				}
			}
		}
	}
	return names
}
