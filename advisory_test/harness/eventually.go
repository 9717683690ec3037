package harness

import (
	"testing"
	"time"
)

// Patience is for what must happen at some time; a busy machine may be slow.
const Patience = 30 * time.Second

// Eventually fails the test unless is becomes true.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", Patience, what)
		}
	}
}
