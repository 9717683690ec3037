package advisory_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
)

func TestParseKey(t *testing.T) {
	for s, want := range map[string]advisory.Key{
		"4820":                    advisory.Int64(4820),
		"0":                       advisory.Int64(0),
		"-7":                      advisory.Int64(-7),
		"9223372036854775807":     advisory.Int64(math.MaxInt64),
		"-9223372036854775808":    advisory.Int64(math.MinInt64),
		"12:34":                   advisory.Pair(12, 34),
		"0:0":                     advisory.Pair(0, 0),
		"-1:-2":                   advisory.Pair(-1, -2),
		"2147483647:-2147483648":  advisory.Pair(math.MaxInt32, math.MinInt32),
		"name:reconcile":          advisory.Name("reconcile"),
		"name:billing/eu":         advisory.Name("billing", "eu"),
		"name:4820":               advisory.Name("4820"),
		"name:a:b/c d/日本語":        advisory.Name("a:b", "c d", "日本語"),
		"hashtext:foo":            advisory.HashText("foo"),
		"hashtext:app:job:42/eu":  advisory.HashText("app:job:42/eu"),
		"hashtext:hello world":    advisory.HashText("hello world"),
		"hashtextextended:0:foo":  advisory.HashTextExtended("foo", 0),
		"hashtextextended:-1:a:b": advisory.HashTextExtended("a:b", -1),
	} {
		if got, err := advisory.ParseKey(s); err != nil || got != want || want.IsZero() {
			t.Errorf("ParseKey(%q) = %v, %v; want %v", s, got, err, want)
		}
	}
}

func TestParseKeyRefuses(t *testing.T) {
	for s, why := range map[string]string{
		"":                          "a number is missing",
		" ":                         "not a number",
		"foo":                       "not a number",
		"invalid":                   "not a number", // what String makes of the zero Key
		" 4820":                     "not a number",
		"4820 ":                     "not a number",
		"4820\n":                    "not a number",
		"4 820":                     "not a number",
		"4_820":                     "not a number",
		"4820.0":                    "not a number",
		"0x12":                      "not a number",
		"1e3":                       "not a number",
		"-":                         "not a number",
		"--7":                       "not a number",
		"٤٨٢٠":                      "not a number",
		"+5":                        `"5"`,
		"007":                       `"7"`,
		"-0":                        `"0"`,
		"-07":                       `"-7"`,
		"9223372036854775808":       "64 bits",
		"-9223372036854775809":      "64 bits",
		"2147483648:0":              "32 bits",
		"0:-2147483649":             "32 bits",
		":":                         "a number is missing",
		"12:":                       "a number is missing",
		":34":                       "a number is missing",
		"12: 34":                    "not a number",
		"12 :34":                    "not a number",
		"12:34:56":                  "not a number",
		"12, 34":                    "not a number", // Key.SQL
		"12:+34":                    `"34"`,
		"012:34":                    `"12"`,
		"billing:eu":                "not a number",
		"Name:billing":              "not a number",
		" name:billing":             "not a number",
		"name":                      "not a number",
		"name:":                     "part of the name is empty",
		"name:/":                    "part of the name is empty",
		"name:/eu":                  "part of the name is empty",
		"name:billing/":             "part of the name is empty",
		"name:billing//eu":          "part of the name is empty",
		"name: billing":             "white space",
		"name:billing /eu":          "white space",
		"name:billing/\teu":         "white space",
		"name:billing\n":            "white space",
		"name:\u00a0billing":        "white space",
		"hashtext":                  "not a number",
		"hashtext:":                 "text is empty",
		"hashtext: foo":             "white space",
		"hashtext:foo\r":            "white space",
		"hashtext:a\x00b":           "NUL",
		"hashtext:caf\xe9":          "UTF-8",
		"hashtextextended:":         "seed",
		"hashtextextended:foo":      "seed",
		"hashtextextended:foo:bar":  "seed",
		"hashtextextended:01:bar":   "seed",
		"hashtextextended:0":        "no text",
		"hashtextextended:0:":       "text is empty",
		"hashtextextended:0: x":     "white space",
		"hashtextextended:0:\xffoo": "UTF-8",
	} {
		k, err := advisory.ParseKey(s)
		if !k.IsZero() || !errors.Is(err, advisory.ErrInvalidKey) {
			t.Errorf("ParseKey(%q) = %v, %v; want ErrInvalidKey", s, k, err)
			continue
		}
		checkParseError(t, s, err)
		if !strings.Contains(err.Error(), why) {
			t.Errorf("ParseKey(%q): %v; want %q in it", s, err, why)
		}
	}
}

func TestParseKeyErrorReads(t *testing.T) {
	_, err := advisory.ParseKey("billing/eu")
	want := `pgadvisory: invalid key "billing/eu": "billing/eu" is not a number; ` +
		`keys are written as "4820", "12:34", "name:billing/eu", "hashtext:foo" or "hashtextextended:0:foo"`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func FuzzParseKey(f *testing.F) {
	for _, s := range []string{
		"", "4820", "-7", "12:34", "-1:-2", "+5", "-0", "12: 34", "9223372036854775808", "2147483648:1",
		"name:billing/eu", "name:/", "hashtext:foo", "hashtext:\xff", "hashtextextended:-1:a:b",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k, err := advisory.ParseKey(s)
		if err != nil {
			if !k.IsZero() {
				t.Errorf("ParseKey(%q) = %v together with an error", s, k)
			}
			checkParseError(t, s, err)
			return
		}
		if k.IsZero() {
			t.Fatalf("ParseKey(%q) is the zero Key without an error", s)
		}
		if again, err := advisory.ParseKey(k.String()); err != nil || again != k {
			t.Errorf("ParseKey(%q) = %v, which reads back as %v, %v", s, k, again, err)
		}
		// One key, one way to write it as numbers.
		if kind, rest, found := strings.Cut(s, ":"); !found || kind[0] == '-' || '0' <= kind[0] && kind[0] <= '9' {
			if k.String() != s {
				t.Errorf("ParseKey(%q) = %v", s, k)
			}
		} else if kind == "name" {
			if k != advisory.Name(strings.Split(rest, "/")...) {
				t.Errorf("ParseKey(%q) = %v", s, k)
			}
		}
	})
}

// checkParseError checks that an error of ParseKey says which text it is about,
// and how keys are written.
func checkParseError(t *testing.T, s string, err error) {
	t.Helper()
	if !errors.Is(err, advisory.ErrInvalidKey) {
		t.Errorf("ParseKey(%q): %v is not ErrInvalidKey", s, err)
	}
	for _, want := range []string{quoted(s), `"4820"`, `"12:34"`, `"name:billing/eu"`, `"hashtext:foo"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("ParseKey(%q): %v; want %s in it", s, err, want)
		}
	}
}
