package pgtest

import (
	"context"
	"sync"
	"testing"
)

var shared = sync.OnceValues(func() (*Server, error) { return Start(context.Background()) })

// SharedServer returns the one server that all tests of this process share. The first call starts
// it. If there is none, the test fails. Tests that affect others, by settings or faults, use
// [NewServer].
func SharedServer(t testing.TB) *Server {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// URL returns the URL of a new database on the shared server. When the test ends, the database is
// dropped, even if clients are still connected.
func URL(t testing.TB) string {
	t.Helper()
	return SharedServer(t).Database(t)
}
