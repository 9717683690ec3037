package harness

import (
	"os"
	"strconv"
	"testing"
)

// Rounds is how often to repeat what is left to chance: once, or as often as
// PGADVISORY_ROUNDS says.
func Rounds(t testing.TB) int {
	t.Helper()
	s := os.Getenv("PGADVISORY_ROUNDS")
	if s == "" {
		return 1
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("PGADVISORY_ROUNDS is %q, not a number of rounds", s)
	}
	return n
}
