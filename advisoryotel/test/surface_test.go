package otel_test

import (
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/surface"
)

// TestSurfaceIsAsListed shows what a change adds to the names that users of advisoryotel can write,
// and what it takes away.
func TestSurfaceIsAsListed(t *testing.T) {
	surface.Compare(t, "testdata/surface.txt", "advisoryotel")
}
