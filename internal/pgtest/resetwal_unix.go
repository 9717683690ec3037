//go:build unix

package pgtest

import "testing"

// ResetWAL runs pg_resetwal with the arguments on a stopped server. Without that program the test is
// skipped.
func (s *Server) ResetWAL(t testing.TB, args ...string) {
	t.Helper()
	s.withPrograms(t, false, func(c *cluster) error {
		return c.program("pg_resetwal", append(args, c.path("data"))...)
	})
}
