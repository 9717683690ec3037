//go:build linux || darwin || freebsd

package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// What asks the server ends in time, or at Ctrl-C, though the server does not answer.
func TestServerThatDoesNotAnswer(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t, "max_prepared_transactions=5")
	url := server.URL()
	db := open(t, url)
	// A prepared transaction has no pid, and is named.
	if _, err := db.Exec("BEGIN; SELECT pg_advisory_xact_lock(1); PREPARE TRANSACTION 'job'"); err != nil {
		t.Fatal(err)
	}
	p := pgadvisory(t, url, "wait", "-v", "-w", "0.2", "1")
	if code := p.ends(); code != exitNo {
		t.Errorf("wait: exit code %d: %s", code, p.stderr)
	}
	if text := p.stderr.String(); strings.Count(text, "prepared") != 1 {
		t.Errorf("wait -v said %q", text)
	}

	watch := pgadvisory(t, url, "ls", "--watch", "--every", "0.05")
	watch.line()
	waits := pgadvisory(t, url, "wait", "-w", "2", "1")
	eventually(t, "wait is connected", func() bool {
		var n int
		if err := db.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pgadvisory wait%'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n > 0
	})
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	defer server.Resume()
	if code := waits.ends(); code != exitUnavailable {
		t.Errorf("wait: exit code %d: %s", code, waits.stderr)
	}
	watch.cmd.Process.Signal(syscall.SIGINT)
	if code := watch.ends(); code != 0 { // the normal end of a watch
		t.Errorf("ls: exit code %d: %s", code, watch.stderr)
	}
	if text := watch.stderr.String(); text != "" {
		t.Errorf("ls said %q", text)
	}
}
