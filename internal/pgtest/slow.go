package pgtest

import (
	"os"
	"testing"
)

// Slow skips a test that takes more than a second or two, unless PGADVISORY_TEST_SLOW is
// set: "make test" sets it, and "go test ./..." by itself is quick.
func Slow(t testing.TB) {
	t.Helper()
	if os.Getenv("PGADVISORY_TEST_SLOW") == "" {
		t.Skip(`slow: "make test" runs it, or PGADVISORY_TEST_SLOW=1`)
	}
}
