package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pgadvisory/pgadvisory/inspect"
)

var releaseCommand = &command{
	name:    "release",
	args:    "[flags] PID",
	summary: "ends the session that holds or waits for a lock; it first shows the session and asks",
	help: `
PostgreSQL does not let a session release the lock of another, so release terminates the session. It loses
all its locks and its connection, and an open transaction is rolled back. With --cancel, release cancels
only the running statement, which ends a wait and releases nothing.

pgadvisory who and pgadvisory ls show the PID. release needs the privileges of the same role, of
pg_signal_backend, or of a superuser.

  pgadvisory release 812
  pgadvisory release --yes 812
`,
	setup: func(p *program, flags *flag.FlagSet) func(context.Context, []string) error {
		t := connection(flags)
		cancel := flags.Bool("cancel", false, "cancel the running statement, and keep the session")
		yes := flags.Bool("yes", false, "do not ask")
		return func(ctx context.Context, args []string) error {
			if len(args) != 1 {
				return usage("release: give one pid: see pgadvisory help release")
			}
			pid, err := strconv.ParseInt(args[0], 10, 32)
			if err != nil || pid <= 0 {
				return usage("release: %q is not the pid of a session", args[0])
			}
			db, err := t.open(ctx, "pgadvisory release")
			if err != nil {
				return err
			}
			defer db.Close()
			return p.release(ctx, db, int(pid), *cancel, *yes)
		}
	},
}

func (p *program) release(ctx context.Context, db *sql.DB, pid int, cancel, yes bool) error {
	// The statement below compares the time again, in case another session has got the pid since.
	var began sql.NullString
	err := db.QueryRowContext(ctx, "SELECT backend_start::pg_catalog.text FROM pg_catalog.pg_stat_activity WHERE pid = $1", pid).Scan(&began)
	if errors.Is(err, sql.ErrNoRows) {
		return fail(exitNo, "there is no session with pid %d: see pgadvisory ls", pid)
	}
	if err != nil {
		return err
	}
	locks, err := locksOf(ctx, db, pid)
	if err != nil {
		return err
	}
	if len(locks) == 0 {
		return fail(exitNo, "pid %d neither holds nor waits for an advisory lock of this database: see pgadvisory ls", pid)
	}
	for _, l := range locks {
		fmt.Fprintln(p.err, l)
	}
	if cancel && strings.HasPrefix(locks[0].State, "idle") {
		return fail(exitNo, "pid %d is idle: there is no statement to cancel, and its lock stays; without --cancel, release ends the session", pid)
	}
	function, what, done := "pg_terminate_backend", "Terminate this session", "terminated"
	if cancel {
		function, what, done = "pg_cancel_backend", "Cancel its statement", "cancelled"
	}
	if !yes {
		ok, err := p.ask(what)
		if err != nil || !ok {
			return err
		}
	}
	var sent bool
	err = db.QueryRowContext(ctx, "SELECT pg_catalog."+function+"(pid) FROM pg_catalog.pg_stat_activity WHERE pid = $1 AND backend_start::pg_catalog.text IS NOT DISTINCT FROM $2", pid, began).Scan(&sent)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !sent {
		return fail(exitNo, "pid %d has already ended", pid)
	}
	if err != nil {
		return fmt.Errorf("cannot end pid %d: %w", pid, err)
	}
	if !cancel {
		if err := untilGone(ctx, db, pid); err != nil {
			return err
		}
	}
	fmt.Fprintf(p.out, "%s pid %d\n", done, pid)
	return nil
}

func locksOf(ctx context.Context, db *sql.DB, pid int) (locks []inspect.Lock, err error) {
	all, err := inspect.Locks(ctx, db)
	for _, l := range all {
		if l.PID == pid {
			locks = append(locks, l)
		}
	}
	return locks, err
}

// untilGone waits until a session that is being terminated has no locks left.
func untilGone(ctx context.Context, db *sql.DB, pid int) error {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		locks, err := locksOf(ctx, db, pid)
		if err != nil || len(locks) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return fail(exitUnavailable, "pid %d was asked to end but still has its locks after 10s: see pgadvisory ls", pid)
}

// ask asks a question on the terminal, and reports whether the answer is yes.
func (p *program) ask(what string) (bool, error) {
	if !isTerminal(p.in) {
		return false, usage("release: cannot ask without a terminal: give --yes")
	}
	fmt.Fprintf(p.err, "%s? [y/N] ", what)
	line, err := bufio.NewReader(p.in).ReadString('\n')
	if err != nil {
		fmt.Fprintln(p.err)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	}
	return false, fail(exitNo, "nothing was done")
}
