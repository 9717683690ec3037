//go:build unix

package pgtest

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// Upgrade moves the data of a stopped server into a new cluster by pg_upgrade, and starts that on the
// old one's address. The programs are the same ones, which pg_upgrade permits. Without them the test
// is skipped.
func (s *Server) Upgrade(t testing.TB) {
	t.Helper()
	s.withPrograms(t, false, func(c *cluster) error {
		bindir, err := c.programs()
		if err == nil {
			err = c.newData("upgraded")
		}
		if err != nil {
			return err
		}
		err = c.program("pg_upgrade", "--old-datadir="+c.path("data"), "--new-datadir="+c.path("upgraded"),
			"--old-bindir="+bindir, "--new-bindir="+bindir, "--socketdir="+c.path("socket"), "--username=postgres", "--link")
		if err == nil {
			err = c.replaceData("upgraded")
		}
		if err != nil {
			return err
		}
		return s.start()
	})
}

// Renew replaces the data of a stopped server by those of a new cluster, which has a system
// identifier of its own. It starts the server on the old one's address, with its password and
// settings.
func (s *Server) Renew(t testing.TB) {
	t.Helper()
	s.withPrograms(t, false, func(c *cluster) error {
		err := c.newData("renewed")
		if err == nil {
			err = c.replaceData("renewed")
		}
		if err == nil {
			err = s.start()
		}
		if err != nil {
			return err
		}
		password, _ := s.url.User.Password()
		return s.setPassword(context.Background(), password)
	})
}

// newData makes a data folder by initdb. A copy of one that was made before would have the same
// system identifier.
func (c *cluster) newData(name string) error {
	args, _, err := c.initdbArgs(context.Background())
	if err != nil {
		return err
	}
	return c.program("initdb", append(args, "--pgdata="+c.path(name))...)
}

// replaceData puts a data folder in the place of the server's. It keeps the configuration.
func (c *cluster) replaceData(name string) error {
	for _, file := range []string{"postgresql.conf", "pg_hba.conf"} {
		if err := os.Rename(c.path("data/"+file), c.path(name+"/"+file)); err != nil {
			return fmt.Errorf("pgtest: keeping the configuration: %w", err)
		}
	}
	if err := os.RemoveAll(c.path("data")); err != nil {
		return err
	}
	return os.Rename(c.path(name), c.path("data"))
}
