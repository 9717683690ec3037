package surface

import (
	"slices"
	"testing"
)

func TestEachChangeIsShown(t *testing.T) {
	listed, now := []string{"a", "b", "c"}, []string{"a", "c", "d"}
	if added := without(now, listed); !slices.Equal(added, []string{"d"}) {
		t.Errorf("added: %q", added)
	}
	if removed := without(listed, now); !slices.Equal(removed, []string{"b"}) {
		t.Errorf("removed: %q", removed)
	}
}
