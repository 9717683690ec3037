//go:build unix

package pgtest

import (
	"fmt"
	"os"
	"testing"
)

// BackUp copies the data folder of a running server by pg_basebackup, with the write-ahead log that
// the copy needs. It replaces an earlier backup. Without that program the test is skipped.
func (s *Server) BackUp(t testing.TB) {
	t.Helper()
	s.withPrograms(t, true, func(c *cluster) error {
		if err := os.RemoveAll(c.path("backup")); err != nil {
			return err
		}
		return c.program("pg_basebackup", "--pgdata="+c.path("backup"), "--wal-method=fetch", "--checkpoint=fast", "--no-sync",
			"--dbname="+s.socketURL.String())
	})
}

// Restore puts a copy of the backup in the place of the data of a stopped server, and starts it. With
// settings the server recovers as they say, such as "recovery_target_name=here". Without settings it
// goes on where the backup ended, as a snapshot of its volumes does.
func (s *Server) Restore(t testing.TB, settings ...string) {
	t.Helper()
	s.withPrograms(t, false, func(c *cluster) error {
		if err := os.RemoveAll(c.path("data")); err != nil {
			return err
		}
		if _, err := copyTree(c.path("backup"), c.path("data"), c.give); err != nil {
			return err
		}
		if len(settings) > 0 {
			if err := c.recoverAs(settings); err != nil {
				return err
			}
		}
		return s.start()
	})
}

// recoverAs makes the next start a recovery with these settings.
func (c *cluster) recoverAs(lines []string) error {
	settings, err := parseSettings(lines)
	if err != nil {
		return err
	}
	var conf string
	for _, s := range settings {
		conf += fmt.Sprintln(s)
	}
	if err := appendTo(c.path("data/postgresql.conf"), conf); err != nil {
		return err
	}
	return c.write("recovery.signal", "")
}

// Dump writes a database of a running server, by its name, to a file of the server's folder, by
// pg_dump. Without that program the test is skipped.
func (s *Server) Dump(t testing.TB, database string) {
	t.Helper()
	s.withPrograms(t, true, func(c *cluster) error {
		return c.program("pg_dump", "--format=custom", "--file="+c.path("dump"), withDatabase(s.socketURL, database))
	})
}

// RestoreDump runs pg_restore with what Dump wrote, into an existing database.
func (s *Server) RestoreDump(t testing.TB, database string) {
	t.Helper()
	s.withPrograms(t, true, func(c *cluster) error {
		return c.program("pg_restore", "--exit-on-error", "--dbname="+withDatabase(s.socketURL, database), c.path("dump"))
	})
}
