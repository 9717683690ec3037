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
	"golang-migrate-url": func(input string) advisory.Key {
		names := strings.Split(input, "|")
		last := len(names) - 1
		return interop.GolangMigrateURL(names[last], names[:last]...)
	},
	"rails":                 interop.Rails,
	"sqlx-rust":             interop.SQLxRust,
	"sqlx-rust-migrate":     interop.SQLxRustMigrate,
	"with_advisory_lock":    interop.WithAdvisoryLock,
	"django-pglock":         interop.DjangoPGLock,
	"DistributedLock-hash":  interop.DistributedLock,
	"DistributedLock-ascii": interop.DistributedLock,
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

// The form of the key depends on the name, as the library's constructor decides it.
func TestDistributedLockChoosesTheFormOfTheKey(t *testing.T) {
	for name, want := range map[string]advisory.Key{
		"reconcile":         advisory.Pair(-443080963, -655037238), // short: packed, not hashed
		"00000000000012d4":  advisory.Int64(4820),
		"00000000000012D4":  advisory.Int64(4820),
		"ffffffffffffffff":  advisory.Int64(-1),
		"0000000c,00000022": advisory.Pair(12, 34),
		// NULs behind the digits of a half count for nothing, as int.TryParse has it.
		"0000000c,00022\x00\x00\x00":         advisory.Pair(12, 34),
		"0c\x00\x00\x00\x00\x00\x0000000022": advisory.Int64(12<<32 + 34),
		"FFFFFFFF,80000000":                  advisory.Pair(-1, -1<<31),
		// These are no numbers, and too long to be packed.
		"some very long name": advisory.Int64(1765484347666752899),
	} {
		if got := interop.DistributedLock(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
	for _, name := range []string{
		"ten__chars", "é", "+000000000000001", "0000000c;00000022", "0x00000000000001", "_000000000000001",
		"000000000000012 ", " 000000000000012", "000000000000012\n", "\t00000c,00000022", "00000c ,00000022", // no whitespace
		"00000000\x00\x00\x00\x00\x00\x00\x00\x00", "000000\x00c00000022", // a half needs a digit, and nothing behind its NULs
		"0000000０00000001", "0000000c，00000022", "0000000c,000000é2", // wide digits and commas are none
	} {
		if _, ok := interop.DistributedLock(name).Int64(); !ok {
			t.Errorf("%q is not hashed", name)
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
