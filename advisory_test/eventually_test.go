package advisory_test

import (
	"testing"
	"time"
)

// patience is for what must happen at some time; a busy machine may be slow.
const patience = 30 * time.Second

// eventually fails the test unless is becomes true.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
