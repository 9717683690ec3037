//go:build unix

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"testing"
)

// ResetWAL runs pg_resetwal with the arguments on a stopped server. Without that program the test is
// skipped.
func (s *Server) ResetWAL(t testing.TB, args ...string) {
	t.Helper()
	err := s.changeCluster(func(c *cluster) error {
		if s.running {
			return errors.New("pgtest: the server runs: stop it first")
		}
		cmd := c.programs().command(context.Background(), "pg_resetwal", append(args, c.path("data"))...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd, err, out)
		}
		return nil
	})
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}
