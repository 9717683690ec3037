//go:build linux || darwin || freebsd

package main

import (
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/pgbouncer"
)

// A PgBouncer as it comes ignores no startup parameter.
func TestPoolerAsItComes(t *testing.T) {
	t.Parallel()
	url := pgbouncer.New(t, pgtest.URL(t), pgbouncer.Options{
		Mode: pgbouncer.Transaction, Settings: []string{"ignore_startup_parameters = "},
	})
	p := pgadvisory(t, url, "run", "--scope", "transaction", "1", "--", "echo", "ran")
	if line, code := p.line(), p.ends(); line != "ran" || code != 0 {
		t.Errorf("%q, exit code %d: %s", line, code, p.stderr)
	}
	p = pgadvisory(t, url, "ls")
	if line, code := p.line(), p.ends(); !strings.HasPrefix(line, "KEY") || code != 0 {
		t.Errorf("%q, exit code %d: %s", line, code, p.stderr)
	}
}

// Where session locks are refused, it is said which are not.
func TestPoolerInTransactionMode(t *testing.T) {
	t.Parallel()
	url := pgbouncer.New(t, pgtest.URL(t), pgbouncer.Options{Mode: pgbouncer.Transaction})
	p := pgadvisory(t, url, "run", "1", "--", "echo", "ran")
	if code := p.ends(); code != exitUnavailable || !strings.Contains(p.stderr.String(), "--scope transaction works") {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}
	p = pgadvisory(t, url, "run", "--scope", "transaction", "1", "--", "echo", "ran")
	if line, code := p.line(), p.ends(); line != "ran" || code != 0 {
		t.Errorf("%q, exit code %d: %s", line, code, p.stderr)
	}
}
