package advisory_test

import (
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
)

func TestModeNames(t *testing.T) {
	var zero advisory.Mode
	if zero != advisory.Exclusive {
		t.Error("the zero Mode is not Exclusive")
	}
	for m, want := range map[advisory.Mode]string{
		advisory.Exclusive: "exclusive", advisory.Shared: "shared", 7: "Mode(7)",
	} {
		if got := m.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
