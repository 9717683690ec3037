package advisory_test

import (
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// These numbers never change. Two releases of a program that disagree on the key
// of a name both hold "the" lock. If this test fails, the code is wrong.
func TestNameGoldenVectors(t *testing.T) {
	for _, v := range []struct {
		parts []string
		want  int64
	}{
		{[]string{"a"}, 4258557881403305461},
		{[]string{"reconcile"}, 3657262854817864505},
		{[]string{"billing", "eu"}, -6174629731877052052},
		{[]string{"billing/eu"}, 59922567321593687},
		{[]string{"account", "17"}, 8181142995578552657},
		{[]string{"a", "b"}, 4367745140043581558},
		{[]string{"b", "a"}, -7359163716984514773},
		{[]string{"a", "bc"}, 4589064456534337473},
		{[]string{"ab", "c"}, 6925784671553650220},
		{[]string{"abc"}, -4374881305908769045},
		{[]string{"日本語"}, 5636115841021182381},
		{[]string{"caf\u00e9"}, -8343900643541651120},
		{[]string{"cafe\u0301"}, 3431752363675584704},
		{[]string{"\xff\x00"}, 1574093780597905191},
		{[]string{strings.Repeat("x", 1000)}, 3920391217622901351},
	} {
		if got := advisory.Name(v.parts...); got != advisory.Int64(v.want) {
			t.Errorf("Name(%.40q) = %v, want %d", v.parts, got, v.want)
		}
	}
}

func TestNameOfAMissingPartIsTheZeroKey(t *testing.T) {
	for _, parts := range [][]string{nil, {}, {""}, {"account", ""}, {"", "17"}, {"", ""}} {
		if k := advisory.Name(parts...); !k.IsZero() {
			t.Errorf("Name(%q) = %v, want the zero Key", parts, k)
		}
	}
}

func TestNameDoesNotAllocate(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { advisory.Name("account", "3f0c8a1e-7b55-4f6e-9d0a-0a4e2a3a6b11") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
