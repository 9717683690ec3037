//go:build unix

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
)

// program runs one of PostgreSQL's programs. Its error is exec.ErrNotFound if there is no such
// program.
func (c *cluster) program(name string, args ...string) error {
	programs := *c
	var err error
	if programs.bindir, err = c.programs(); err != nil {
		return err
	}
	file := filepath.Join(programs.bindir, name)
	if !executable(file) {
		return fmt.Errorf("%s: %w", file, exec.ErrNotFound)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lifecycleTimeout)
	defer cancel()
	cmd := programs.command(ctx, name, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return nil
}

// programs returns the folder with the real postgres. That of PATH may have links to a few programs
// only.
func (c *cluster) programs() (string, error) {
	postgres, err := filepath.EvalSymlinks(filepath.Join(c.bindir, "postgres"))
	return filepath.Dir(postgres), err
}

// withPrograms runs do on a server of PostgreSQL's programs, which runs or not, as running says. It
// skips the test if there is no such server, or if it lacks a program that do runs.
func (s *Server) withPrograms(t testing.TB, running bool, do func(c *cluster) error) {
	t.Helper()
	if _, ok := s.engine.(*cluster); !ok {
		t.Skip("the data folder of this server is out of reach")
	}
	err := s.changeCluster(func(c *cluster) error {
		switch {
		case s.running && !running:
			return errors.New("pgtest: the server runs: stop it first")
		case !s.running && running:
			return errNotRunning
		}
		return do(c)
	})
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}
