package main

import (
	"context"
	"flag"
	"fmt"
)

// Set in init: help knows all commands, and they include it.
var helpCommand = &command{
	name:    "help",
	args:    "[SUBCOMMAND | connection | keys | exit-codes]",
	summary: "says what there is",
}

func init() {
	helpCommand.setup = func(p *program, _ *flag.FlagSet) func(context.Context, []string) error {
		return func(_ context.Context, args []string) error { return p.help(args) }
	}
}

func (p *program) help(args []string) error {
	if len(args) > 0 {
		if text := topics[args[0]]; text != "" {
			fmt.Fprint(p.out, text)
			return nil
		}
		c := named(args[0])
		if c == nil {
			return usage("there is no help on %q: see pgadvisory help", args[0])
		}
		c.tell(p.out)
		return nil
	}
	fmt.Fprint(p.out, "pgadvisory: PostgreSQL advisory locks from the command line\n\nusage: pgadvisory SUBCOMMAND [flags] [arguments]\n\n")
	for _, c := range commands() {
		fmt.Fprintf(p.out, "  %-12s %s\n", c.name, c.summary)
	}
	fmt.Fprint(p.out, `
  pgadvisory help run           the flags of a subcommand, and examples
  pgadvisory help connection    how the server is found, and where the password belongs
  pgadvisory help keys          how keys are written
  pgadvisory help exit-codes    what the exit codes say
`)
	return nil
}

// topics are texts that belong to no subcommand alone.
var topics = map[string]string{
	"connection": `How the server is found: by -d, else DATABASE_URL, else as psql does, by PGHOST, PGPORT,
PGUSER, PGDATABASE, PGSSLMODE and their like. What -d or DATABASE_URL leaves open is also taken
from those. -d is a URL, a list such as "host=db1 dbname=app", or the name of a database:

  pgadvisory ls -d postgres://app@db1/app
  pgadvisory ls -d app

Without a host the local Unix socket is used if there is one, else localhost. Without an sslmode
TLS is used if the server has it. Connecting is given up after 10 seconds, or what connect_timeout or
PGCONNECT_TIMEOUT says. Service files, several hosts and target_session_attrs are not supported, as
they are not by the driver, lib/pq. Through PgBouncer it connects only where pgbouncer.ini has
ignore_startup_parameters = extra_float_digits.

A password belongs in ~/.pgpass, or the file that PGPASSFILE names, or in PGPASSWORD. In -d
everybody on this machine can read it in the list of processes, as with psql. pgadvisory prints it
nowhere, and starts no process with it among its arguments. "run" gives its command the
environment that it was started with, as it is: PGPASSWORD and DATABASE_URL too, if they are
set, for the command may need them; not what came by -d.
`,
	"keys": `How keys are written:

  4820                     the number 4820:     pg_advisory_lock(4820)
  12:34                    the pair 12, 34:     pg_advisory_lock(12, 34)
  name:billing/eu          a name, in parts:    advisory.Name("billing", "eu")
  hashtext:foo             as many do in SQL:   pg_advisory_lock(hashtext('foo'))
  hashtextextended:0:foo   the same in 64 bits: pg_advisory_lock(hashtextextended('foo', 0))

Locks belong to one database: in another database of the server, the same key is another lock.
"pgadvisory key" tells a key in all its forms.
`,
	"exit-codes": `What the exit codes say:

  0     done; for run: the command's
  1     the answer is no: the lock was not free (run -n, run -w, wait -w; -E changes it), nobody
        holds it (who), no such session has or wants a lock, or nobody said yes (release), there is
        a warning or a suspect (check --strict)
  64    wrong flags or arguments, a key in no known form, wrong settings of the connection
  69    the server cannot be reached, or cannot be used: a hot standby, a pooler in transaction
        mode, older than PostgreSQL 12
  71    the system refused something, such as a new process
  75    run: the lock was lost while the command ran, and the command was ended; or its release is
        in doubt
  77    wrong password, or no right to do it
  126   run: the command cannot be run
  127   run: there is no such command
  128+n ended by signal n: the command of run, or pgadvisory while it waited

Otherwise run exits with the exit code of its command.
`,
}
