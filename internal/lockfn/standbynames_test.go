package lockfn

import (
	"reflect"
	"testing"
)

func TestReadStandbyNames(t *testing.T) {
	for value, want := range map[string]StandbyNames{
		"":                          {},
		"  ":                        {},
		"b":                         {Confirm: 1, Names: []string{"b"}},
		"b, C":                      {Confirm: 1, Names: []string{"b", "c"}},
		"*":                         {Confirm: 1, Names: []string{"*"}},
		"2 (b, c,d)":                {Confirm: 2, Names: []string{"b", "c", "d"}},
		"FIRST 1 (b, c)":            {Confirm: 1, Names: []string{"b", "c"}},
		"any 2(b,\"c\")":            {Confirm: 2, Any: true, Names: []string{"b", "c"}},
		"ANY 1 (*)":                 {Confirm: 1, Any: true, Names: []string{"*"}},
		`"a,b", "x (y)", "say ""x"`: {Confirm: 1, Names: []string{"a,b", "x (y)", `say "x`}},
		"any":                       {Confirm: 1, Names: []string{"any"}}, // a name like another
		"1":                         {Confirm: 1, Names: []string{"1"}},
	} {
		if got, ok := ReadStandbyNames(value); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", value, got, ok)
		}
	}
	for _, value := range []string{"ANY (b)", "ANY x (b)", "0 (b)", "-1 (b)", "FIRST 2 b, c", "1 ()", "b c", "b,", ",b", "1 (b", "(b)", "ANY 1 2 (b)", `""`} {
		if got, ok := ReadStandbyNames(value); ok {
			t.Errorf("%q: %+v", value, got)
		}
	}
	for value, all := range map[string]bool{"*": true, "ANY 2 (b, *)": true, "b": false, "": false} {
		if n, _ := ReadStandbyNames(value); n.All() != all {
			t.Errorf("%q: %v", value, n.All())
		}
	}
}
