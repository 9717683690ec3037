package option_test

import (
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/option"
)

// A Set sets the same wherever it fits.
func TestSetFitsEveryCall(t *testing.T) {
	set := option.Set(func(c *option.Call) { c.Label, c.HoldAtLeast = c.Label+"x", time.Second })
	for name, apply := range map[string]func(*option.Call){
		"conn": set.ApplyConn, "tx": set.ApplyTx, "begin": set.ApplyBegin, "locker": set.ApplyLocker, "semaphore": set.ApplySemaphore,
	} {
		c := option.Call{Mode: 1}
		apply(&c)
		if want := (option.Call{Mode: 1, Plain: option.Plain{Label: "x", HoldAtLeast: time.Second}}); c != want {
			t.Errorf("%s: %+v, want %+v", name, c, want)
		}
	}
}
