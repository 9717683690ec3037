package examples_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// example builds a program of the examples and runs it, with these variables in its
// environment.
func example(t *testing.T, name string, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	harness.RunGo(t, "../..", nil, "build", "-o", program, "./examples/"+name)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	t.Logf("%s%s", &out, &errs)
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// on is the environment in which the server of the tests is the user's.
func on(s *pgtest.Server) []string {
	return []string{"PGADVISORY_TEST_SERVER=url", "DATABASE_URL=" + s.URL()}
}

func TestExampleReconcile(t *testing.T) {
	stdout, stderr, code := example(t, "reconcile", on(pgtest.SharedServer(t)))
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d, on stderr %q", code, stderr)
	}
	if lines := strings.Count(stdout, "\n"); lines > 40 {
		t.Errorf("%d lines", lines)
	}

	rounds := strings.Split(stdout, "\nround ")[1:]
	if len(rounds) != 4 {
		t.Fatalf("%d rounds", len(rounds))
	}
	for i, round := range rounds {
		works := regexp.MustCompile(`(?m)^  (worker-\d)  true   works$`).FindAllStringSubmatch(round, -1)
		if len(works) != 1 {
			t.Errorf("round %d has %d winners", i+1, len(works))
			continue
		}
		winner := works[0][1]
		aside := regexp.MustCompile(`(?m)^  worker-\d  false  steps aside: pid \d+, (worker-\d), has the lock$`).FindAllStringSubmatch(round, -1)
		if len(aside) != 2 || aside[0][1] != winner || aside[1][1] != winner {
			t.Errorf("round %d: %s won, and those who step aside say %q", i+1, winner, aside)
		}
		end := winner + "         has done 3 accounts; the lock is released"
		if i == 3 {
			end = winner + "         is killed at work"
		}
		_, after, ended := strings.Cut(round, end)
		if !ended || !regexp.MustCompile(`^[^\n]*\n  worker-\d  true   tries again`).MatchString(after) {
			t.Errorf("round %d: the next try is not true:\n%s", i+1, round)
		}
	}
	if !strings.Contains(stdout, "\nledger: 4 rounds of 3 accounts, 12 entries, 0 doubled, 0 missing, balances 120\n") {
		t.Error("the ledger is not right")
	}
}

// The checks of the example must be able to fail.
func TestExampleReconcileWithoutTheLock(t *testing.T) {
	pgtest.Slow(t)
	stdout, stderr, code := example(t, "reconcile", on(pgtest.SharedServer(t)), "-without-lock")
	if code != 1 || !strings.Contains(stderr, "winners") || !strings.Contains(stderr, "double work") {
		t.Errorf("exit code %d, on stderr %q", code, stderr)
	}
	if strings.Contains(stdout, " 0 doubled") {
		t.Error("the ledger shows no double work")
	}
}

func TestExampleMigrate(t *testing.T) {
	stdout, stderr, code := example(t, "migrate", on(pgtest.SharedServer(t)))
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d, on stderr %q", code, stderr)
	}
	acts := strings.Split(stdout, "\nact ")[1:]
	if len(acts) != 3 {
		t.Fatalf("%d acts", len(acts))
	}
	madeOnce := func(act string, step int) {
		t.Helper()
		if n := len(regexp.MustCompile(fmt.Sprintf(`made [\d, ]*\b%d\b[\d, ]* itself`, step)).FindAllString(act, -1)); n != 1 {
			t.Errorf("%d processes made step %d:\n%s", n, step, act)
		}
	}
	for step := 1; step <= 3; step++ {
		madeOnce(acts[0], step)
	}
	if n := strings.Count(acts[1], "failed at step 4"); n != 5 {
		t.Errorf("%d of 5 were told of the failed step", n)
	}
	madeOnce(acts[2], 4)
	for i, state := range []string{
		"schema version 3, 3 rows in schema_version, no login column, 0 advisory locks",
		"schema version 3, 3 rows in schema_version, no login column, 0 advisory locks",
		"schema version 4, 4 rows in schema_version, a login column, 0 advisory locks",
	} {
		if !strings.Contains(acts[i], state) {
			t.Errorf("act %d does not end with %s", i+1, state)
		}
	}
}

func TestExamplesWithoutAServer(t *testing.T) {
	for _, name := range []string{"reconcile", "migrate"} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, code := example(t, name, []string{
				"PGADVISORY_TEST_SERVER=url", "DATABASE_URL=postgres://127.0.0.1:1/nowhere",
			})
			if code == 0 || stdout != "" || strings.Count(stderr, "\n") != 1 ||
				!strings.Contains(stderr, "DATABASE_URL") || !strings.Contains(stderr, "127.0.0.1:1") {
				t.Errorf("exit code %d, on stdout %q, on stderr %q", code, stdout, stderr)
			}
		})
	}
}
