package locker

import (
	"testing"
	"time"
)

// The pause between two passes grows with what a pass costs the server, not with what a slow link adds.
func TestPauseBetweenPasses(t *testing.T) {
	for _, c := range []struct {
		keys       int
		took, want time.Duration
	}{
		{200, time.Millisecond, retryAny},
		{200, 50 * time.Millisecond, 500 * time.Millisecond},
		{200, 3 * time.Second, time.Second},
		{1 << 20, 2500 * time.Millisecond, 25 * time.Second},
	} {
		if got := (choice{n: c.keys}).pause(c.took); got != c.want {
			t.Errorf("%d keys, a pass of %v: %v", c.keys, c.took, got)
		}
	}
}
