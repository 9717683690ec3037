package interop_test

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/interop"
)

// tools has the functions by their names in the golden file.
var tools = map[string]func(input string) advisory.Key{
	"goose":             func(string) advisory.Key { return interop.Goose() },
	"goose-before-3.26": func(string) advisory.Key { return interop.GooseBefore326() },
	"golang-migrate": func(input string) advisory.Key {
		names := strings.Split(input, "|")
		last := len(names) - 1
		return interop.GolangMigrate(names[last], names[:last]...)
	},
	"rails":                 interop.Rails,
	"sqlx-rust":             interop.SQLxRust,
	"sqlx-rust-migrate":     interop.SQLxRustMigrate,
	"with_advisory_lock":    interop.WithAdvisoryLock,
	"django-pglock":         interop.DjangoPGLock,
	"DistributedLock-hash":  interop.DistributedLockHash,
	"DistributedLock-ascii": interop.DistributedLockASCII,
	"prisma":                func(string) advisory.Key { return interop.Prisma() },
	"tern":                  func(string) advisory.Key { return interop.Tern() },
	"atlas":                 interop.Atlas,
}

// The golden file has the keys that the tools themselves, or their own tests, compute.
func TestKeysAreThoseOfTheTools(t *testing.T) {
	file, err := os.Open("testdata/peer_keys.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	seen := map[string]bool{}
	lines := bufio.NewScanner(file)
	lines.Scan() // the heading
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		tool, input, want := fields[0], fields[1], fields[2]
		key := tools[tool]
		if key == nil {
			t.Errorf("nothing computes the keys of %s", tool)
			continue
		}
		seen[tool] = true
		if got := key(input); got.String() != want {
			t.Errorf("%s of %q: %v, want %v", tool, input, got, want)
		}
	}
	if lines.Err() != nil {
		t.Fatal(lines.Err())
	}
	for tool := range tools {
		if !seen[tool] {
			t.Errorf("no golden value for %s", tool)
		}
	}
}

func TestDistributedLockASCIIRefusesOtherNames(t *testing.T) {
	for _, name := range []string{"ten__chars", "é"} {
		if key := interop.DistributedLockASCII(name); !key.IsZero() {
			t.Errorf("%q: %v, want the zero Key", name, key)
		}
	}
}

// append within GolangMigrate must not write into the caller's array.
func TestGolangMigrateLeavesItsArgumentsAlone(t *testing.T) {
	names := []string{"public", "schema_migrations", "mine"}
	interop.GolangMigrate("app", names[:2]...)
	if names[2] != "mine" {
		t.Error("the caller's slice was overwritten")
	}
}
