package house_test

import (
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/surface"
)

// TestSurfaceIsAsListed shows what a change adds to the names that users can write, and what it
// takes away. The module advisoryotel/test has the same test for advisoryotel.
func TestSurfaceIsAsListed(t *testing.T) {
	surface.Compare(t, "testdata/surface.txt", "advisory", "advisory/inprocess", "advisory/locktest", "sqlconn", "xact", "locker", "adapt", "inspect", "interop")
}
