package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/failover"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

var runCommand = &command{
	name:    "run",
	args:    "[flags] KEY [--] COMMAND [ARGUMENT…]",
	summary: "runs a command while it holds a lock, as flock(1) does, but for all machines",
	signals: true,
	help: `
  pgadvisory run -n name:nightly -- ./nightly.sh           on one machine; the others do not run it
  pgadvisory run -w 30 4820 -- make migrate                waits for at most 30 s
  pgadvisory run -n --hold-at-least 50 name:tick -- ./tick    from cron on many machines, whose
                                                           clocks differ by less than 50 s
  pgadvisory run -s name:schema -- ./report                together with other readers

The command gets standard input, output and error, the terminal, and signals as if it were run
directly. pgadvisory exits with the command's exit code, or with 128+n if signal n ended it. In the
command's environment, PGADVISORY_KEY is the key. PGADVISORY_TOKEN is a number that grows with each
hold of the key (PostgreSQL 13 or newer), also over a failover of the server. A store that the command
writes to can refuse a token that is smaller than one it has seen. After pg_upgrade, or dump and restore,
tokens begin again unless --token-epoch is given.

The lock is held until the command, and all processes that it has started in its process group, have
ended. If the lock is lost before that, the process group gets SIGTERM, and SIGKILL after --grace; the
exit code is 75. If the network drops packets, pgadvisory detects the loss before the server releases the
lock: by a quarter of --failover less 1.5 s in whole seconds, 3.25 s by default, and at least 1 s. By
default --grace is 0.25 s less than that, and at most 5 s. With a longer --grace the command may still
run when another has the lock.

If pgadvisory is killed with SIGKILL, a second process, which holds the lock, kills the process group
before it releases the lock. This has three limits:

  - It does not find processes that have left the process group, by setsid or in a shell with job
    control. Run those in the foreground.
  - If both processes are killed together, then on Linux the command itself gets SIGKILL, but not the
    processes that it has started.
  - pgadvisory can wait for a command of another user, as under sudo, but not end it. Run pgadvisory
    itself under sudo instead.

--scope transaction holds the lock in an open transaction. It works through poolers in transaction
mode, where locks of sessions do not exclude. The pooler and the server decide how soon the lock of a
machine that vanished is free, and how soon a loss is detected if the network drops packets. So
--failover does not apply, and there is no token.

If the lock is not free, pgadvisory prints nothing without -v, and exits with 1, or the code of -E.
`,
	setup: func(p *program, flags *flag.FlagSet) func(context.Context, []string) error {
		r := &run{p: p}
		r.target = connection(flags)
		flags.BoolVar(&r.once, "n", false, "do not wait for the lock")
		flags.Var(&r.wait, "w", "wait for at most so many `SECONDS`")
		flags.BoolVar(&r.order.Shared, "s", false, "take the lock shared")
		flags.IntVar(&r.conflict, "E", exitNo, "the exit `CODE` if the lock is not free")
		flags.BoolVar(&r.verbose, "v", false, "print what happens")
		flags.Var(&r.hold, "hold-at-least", "keep the lock for so many `SECONDS` even if the command ends earlier")
		flags.Var(&r.failover, "failover", "how many `SECONDS` after this machine vanished the lock is free; at least 4, by default 15")
		flags.Var(&r.grace, "grace", "how many `SECONDS` after SIGTERM the command is killed when the lock is lost; by default 5, or fewer: see above")
		flags.IntVar(&r.order.TokenEpoch, "token-epoch", 0, "add `N` to the timeline in PGADVISORY_TOKEN: the last timeline of the server before pg_upgrade")
		scope := flags.String("scope", "session", "what holds the lock: `session|transaction`")
		return func(_ context.Context, args []string) error { return r.start(*scope, args) }
	},
}

// A run is one run of a command under a lock.
type run struct {
	p                           *program
	target                      *target
	order                       order
	once, verbose               bool
	wait, hold, failover, grace seconds
	conflict                    int

	path string
	argv []string
}

// start checks the arguments and flags, and runs the command.
func (r *run) start(scope string, args []string) error {
	if err := r.arguments(args); err != nil {
		return err
	}
	switch {
	case r.once && r.wait.set:
		return usage("run: -n and -w contradict each other")
	case r.conflict < 0 || r.conflict > 255:
		return usage("run: -E %d: an exit code is from 0 to 255", r.conflict)
	case scope == "transaction" && r.order.TokenEpoch != 0:
		return usage("run: --token-epoch is for --scope session: see pgadvisory help run")
	case r.order.TokenEpoch < 0 || r.order.TokenEpoch >= lockfn.MostTimelines:
		return usage("run: --token-epoch %d: it is from 0 to %d", r.order.TokenEpoch, lockfn.MostTimelines-1)
	case scope == "transaction" && r.failover.set:
		return usage("run: --failover is for --scope session: see pgadvisory help run")
	case r.failover.set && r.failover.Duration < failover.Min:
		return usage("run: --failover %v: it is at least %v", r.failover.Duration, failover.Min)
	case r.failover.Duration > failover.Max:
		return usage("run: --failover %v: it is at most %vh", r.failover.Duration, failover.Max.Hours())
	}
	switch scope {
	case "session":
	case "transaction":
		r.order.Transaction = true
	default:
		return usage("run: --scope %q: give session or transaction", scope)
	}
	r.order.Once = r.once
	if r.wait.set {
		r.order.MaxWait = &r.wait.Duration
	}
	if !r.grace.set {
		r.grace.Duration = r.defaultGrace()
	}
	r.order.HoldAtLeast, r.order.Failover, r.order.Grace = r.hold.Duration, r.failover.Duration, r.grace.Duration
	if err := r.findProgram(); err != nil {
		return err
	}
	d, err := r.target.settings()
	if err != nil {
		return err
	}
	r.order.Settings = d
	r.order.Application = "pgadvisory run " + filepath.Base(r.path)
	return r.underLock()
}

// defaultGrace returns 5 s, or less: on a link that drops packets, the command must be killed
// before the server releases the lock. The Locker detects the loss before the server does, by the
// time that docs/guarantees.md gives for G5.
func (r *run) defaultGrace() time.Duration {
	const (
		most = 5 * time.Second
		kill = 250 * time.Millisecond // for the kill itself
	)
	if r.order.Transaction {
		return most
	}
	within := failover.Default
	if r.failover.set {
		within = r.failover.Duration
	}
	return min(most, failover.Margin(within)-kill)
}

// arguments reads the key and the command.
func (r *run) arguments(args []string) (err error) {
	if len(args) == 0 {
		return usage("run: a key and a command are missing: see pgadvisory help run")
	}
	if r.order.Key, err = advisory.ParseKey(args[0]); err != nil {
		return err
	}
	r.argv = args[1:]
	if len(r.argv) > 0 && r.argv[0] == "--" {
		r.argv = r.argv[1:]
	} else if len(r.argv) > 0 && strings.HasPrefix(r.argv[0], "-") {
		return usage("run: %s stands after the key: put flags before it, and the command after --", r.argv[0])
	}
	if len(r.argv) == 0 {
		return usage("run: a command is missing after the key: see pgadvisory help run")
	}
	return nil
}

// findProgram looks up the command before the wait for the lock begins.
func (r *run) findProgram() error {
	path, err := exec.LookPath(r.argv[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		if e, ok := errors.AsType[*exec.Error](err); ok {
			err = e.Err
		}
		return cannotRun(r.argv[0], err)
	}
	r.path = path
	return nil
}

// cannotRun returns the error for a command that does not exist, or cannot be run.
func cannotRun(name string, err error) error {
	code := exitCannotRun
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		code = exitNotFound
	}
	if e, ok := errors.AsType[*os.PathError](err); ok {
		err = e.Err
	}
	return fail(code, "cannot run %s: %w", name, err)
}
