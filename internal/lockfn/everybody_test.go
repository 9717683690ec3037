package lockfn

import (
	"strings"
	"testing"
)

// Each replacement finds its text, and nothing is left that it was to replace.
func TestEverybodyBare(t *testing.T) {
	for i := 0; i < len(bare); i += 2 {
		if !strings.Contains(Everybody, bare[i]) {
			t.Errorf("there is no %q to replace", bare[i])
		}
		if strings.Contains(EverybodyBare, bare[i]) {
			t.Errorf("%q is left", bare[i])
		}
	}
	for _, shared := range []string{"pg_database", "pg_authid", "pg_roles", "pg_stat_activity", "pg_locks", "pg_prepared_xacts"} {
		if strings.Contains(EverybodyBare, shared) {
			t.Errorf("it reads %s", shared)
		}
	}
}
