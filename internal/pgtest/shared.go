package pgtest

import (
	"context"
	"sync"
	"testing"
)

var shared = sync.OnceValues(func() (*Server, error) { return Start(context.Background()) })

// SharedServer returns the one server that all tests of this process share,
// started when it is first asked for. The test fails if there is none to be had.
// Tests that disturb others, by settings or faults, take [NewServer].
func SharedServer(t testing.TB) *Server {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// URL returns the URL of a fresh database on the shared server. It is dropped,
// whoever is still connected to it, when the test ends.
func URL(t testing.TB) string {
	t.Helper()
	return SharedServer(t).Database(t)
}
