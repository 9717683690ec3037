package advisory_test

import (
	"bufio"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// The golden files were made by servers; see the columns' names.

func TestHashTextGoldenFile(t *testing.T) {
	texts := map[string]string{
		`repeat('x',100)`:  strings.Repeat("x", 100),
		`repeat('a',1000)`: strings.Repeat("a", 1000),
		`E'a b\nc'`:        "a b\nc",
	}
	checkGolden(t, "testdata/hashtext.tsv", []int64{0, 1, -1}, func(expr string) string {
		if s, ok := texts[expr]; ok {
			return s
		}
		s, ok := strings.CutPrefix(expr, "'")
		s, end := strings.CutSuffix(s, "'")
		if !ok || !end || strings.ContainsAny(s, `'\`) {
			t.Fatalf("what is the text of %s?", expr)
		}
		return s
	})
}

func TestHashTextGoldenFileOfLengths(t *testing.T) {
	const text = "twelve bytes at a time, then äöü, €uro and 😀 smile."
	checkGolden(t, "testdata/hashtext_lengths.tsv", []int64{0, 1, math.MinInt64, math.MaxInt64}, func(n string) string {
		characters, err := strconv.Atoi(n)
		if err != nil {
			t.Fatal(err)
		}
		return string([]rune(text)[:characters])
	})
}

// checkGolden reads lines of a text, its hashtext, and its hashtextextended with
// each of the seeds.
func checkGolden(t *testing.T, file string, seeds []int64, text func(column string) string) {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Scan() // the columns' names
	checked := 0
	for lines.Scan() {
		columns := strings.Split(lines.Text(), "\t")
		if len(columns) != 2+len(seeds) {
			t.Fatalf("%s: %d columns: %q", file, len(columns), lines.Text())
		}
		s := text(columns[0])
		if got := advisory.HashText(s).String(); got != columns[1] {
			t.Errorf("HashText(%q) = %s, want %s", s, got, columns[1])
		}
		for i, seed := range seeds {
			if got := advisory.HashTextExtended(s, seed).String(); got != columns[2+i] {
				t.Errorf("HashTextExtended(%q, %d) = %s, want %s", s, seed, got, columns[2+i])
			}
		}
		checked++
	}
	if err := lines.Err(); err != nil || checked < 15 {
		t.Fatalf("%s: %d lines: %v", file, checked, err)
	}
}

func TestHashTextOfWhatNoPostgreSQLTextHolds(t *testing.T) {
	for _, s := range []string{
		"\x00", "a\x00b", "\xff", "caf\xe9", "\xc0\x80", // an overlong NUL
		"\xed\xa0\x80",     // a surrogate
		"\xf4\x90\x80\x80", // beyond U+10FFFF
	} {
		if k := advisory.HashText(s); !k.IsZero() {
			t.Errorf("HashText(%q) = %v, want the zero Key", s, k)
		}
		if k := advisory.HashTextExtended(s, 7); !k.IsZero() {
			t.Errorf("HashTextExtended(%q, 7) = %v, want the zero Key", s, k)
		}
	}
}

func TestHashTextDoesNotAllocate(t *testing.T) {
	s := strings.Repeat("migrations ", 20)
	if n := testing.AllocsPerRun(100, func() { advisory.HashText(s) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzHashText(f *testing.F) {
	f.Add("", int64(0))
	f.Add("reconcile", int64(1))
	f.Add("日本語, twelve bytes and more", int64(-1))
	f.Add("a\x00", int64(math.MinInt64))
	f.Add("\xff", int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, s string, seed int64) {
		plain, extended := advisory.HashText(s), advisory.HashTextExtended(s, seed)
		if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
			if !plain.IsZero() || !extended.IsZero() {
				t.Fatalf("%q: %v, %v, want zero Keys", s, plain, extended)
			}
			return
		}
		if want := advisory.Int64(int64(int32(lookup3(s, 0)))); plain != want {
			t.Errorf("HashText(%q) = %v, want %v", s, plain, want)
		}
		if want := advisory.Int64(int64(lookup3(s, seed))); extended != want {
			t.Errorf("HashTextExtended(%q, %d) = %v, want %v", s, seed, extended, want)
		}
	})
}

// lookup3 is a plain reference: the steps of Jenkins' mix and final as tables,
// the text byte for byte.
func lookup3(s string, seed int64) uint64 {
	const a, b, c = 0, 1, 2
	var r [3]uint32
	rot := func(x uint32, n int) uint32 { return x<<n | x>>(32-n) }
	mix := func() {
		for _, step := range []struct{ x, y, z, n int }{
			{a, c, b, 4}, {b, a, c, 6}, {c, b, a, 8}, {a, c, b, 16}, {b, a, c, 19}, {c, b, a, 4},
		} {
			r[step.x] -= r[step.y]
			r[step.x] ^= rot(r[step.y], step.n)
			r[step.y] += r[step.z]
		}
	}
	for i := range r {
		r[i] = 0x9e3779b9 + uint32(len(s)) + 3923095
	}
	if seed != 0 {
		r[a] += uint32(uint64(seed) >> 32)
		r[b] += uint32(uint64(seed))
		mix()
	}
	whole := len(s) / 12 * 12
	for i := range whole {
		r[i%12/4] += uint32(s[i]) << (i % 4 * 8)
		if i%12 == 11 {
			mix()
		}
	}
	for i, ch := range []byte(s[whole:]) {
		if i >= 8 {
			i++ // the lowest byte of c is left to the length
		}
		r[i/4] += uint32(ch) << (i % 4 * 8)
	}
	for _, step := range []struct{ x, y, n int }{
		{c, b, 14}, {a, c, 11}, {b, a, 25}, {c, b, 16}, {a, c, 4}, {b, a, 14}, {c, b, 24},
	} {
		r[step.x] ^= r[step.y]
		r[step.x] -= rot(r[step.y], step.n)
	}
	return uint64(r[b])<<32 | uint64(r[c])
}
