package settings_test

import (
	"errors"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/settings"
)

func TestCheckKeys(t *testing.T) {
	a, b, zero := advisory.Int64(0), advisory.Pair(0, 0), advisory.Key{}
	if err := settings.CheckKeys(a, b, a); err != nil {
		t.Error(err)
	}
	if err := settings.CheckKeys(); err == nil || errors.Is(err, advisory.ErrInvalidKey) {
		t.Errorf("no keys: %v", err)
	}
	for _, keys := range [][]advisory.Key{{zero}, {a, zero}, {zero, b}} {
		if err := settings.CheckKeys(keys...); !errors.Is(err, advisory.ErrInvalidKey) {
			t.Errorf("%v: %v", keys, err)
		}
	}
}
