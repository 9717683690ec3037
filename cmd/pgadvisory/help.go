package main

import (
	"context"
	"flag"
	"fmt"
)

// Its setup is set in init, because it refers to all commands, which include it.
var helpCommand = &command{
	name:    "help",
	args:    "[SUBCOMMAND | connection | keys | exit-codes]",
	summary: "prints help on a subcommand or a topic",
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
		c := commandNamed(args[0])
		if c == nil {
			return usage("there is no help on %q: see pgadvisory help", args[0])
		}
		c.printHelp(p.out)
		return nil
	}
	fmt.Fprint(p.out, "pgadvisory: PostgreSQL advisory locks from the command line\n\nusage: pgadvisory SUBCOMMAND [flags] [arguments]\n\n")
	for _, c := range commands() {
		fmt.Fprintf(p.out, "  %-12s %s\n", c.name, c.summary)
	}
	fmt.Fprint(p.out, `
  pgadvisory help run           the flags of a subcommand, and examples
  pgadvisory help connection    how the server is found, and where to put the password
  pgadvisory help keys          how keys are written
  pgadvisory help exit-codes    what the exit codes mean
`)
	return nil
}

// topics are the texts that belong to no single subcommand.
var topics = map[string]string{
	"connection": `How the server is found: by -d, else by DATABASE_URL, else by the variables of psql: PGHOST, PGPORT,
PGUSER, PGDATABASE, PGSSLMODE and others. These variables also supply what -d or DATABASE_URL leave
out. -d is a URL, a list such as "host=db1 dbname=app", or the name of a database:

  pgadvisory ls -d postgres://app@db1/app
  pgadvisory ls -d app
  pgadvisory ls -d service=billing
  pgadvisory run -d "postgres://app@db1,db2/app?target_session_attrs=primary" 4820 -- ./job

Without a host pgadvisory uses the local Unix socket if there is one, else localhost. Without an sslmode
it uses TLS if the server supports it. Connecting fails after 10 seconds for each host, or after
connect_timeout or PGCONNECT_TIMEOUT. Of several hosts it takes the first that answers and is as
target_session_attrs asks. Locks need the primary, so name it, or give target_session_attrs=primary.
A service is read from ~/.pg_service.conf or the file that PGSERVICEFILE names.

Put a password into ~/.pgpass, or the file that PGPASSFILE names, or into PGPASSWORD. As with psql,
everyone on this machine can read a password in -d in the list of processes. pgadvisory never prints the
password, and never passes it to a process as an argument. "run" passes its own environment to the
command unchanged, including PGPASSWORD and DATABASE_URL, which the command may need. It does not pass
the value of -d.
`,
	"keys": `How keys are written:

  4820                     the number 4820:     pg_advisory_lock(4820)
  12:34                    the pair 12, 34:     pg_advisory_lock(12, 34)
  name:billing/eu          a name, in parts:    advisory.Name("billing", "eu")
  hashtext:foo             as many do in SQL:   pg_advisory_lock(hashtext('foo'))
  hashtextextended:0:foo   the same in 64 bits: pg_advisory_lock(hashtextextended('foo', 0))

Locks belong to one database: in another database of the server, the same key is another lock.
"pgadvisory key" prints a key in all its forms.
`,
	"exit-codes": `What the exit codes mean:

  0     done; for run: the command's
  1     the answer is no: the lock was not free (run -n, run -w, wait -w; -E changes it), nobody
        holds it (who), no such session has or wants a lock, or nobody said yes (release), there is
        a warning or a suspect (check --strict)
  64    wrong flags or arguments, a key in no known form, wrong settings of the connection
  69    the server is not reachable, or not usable: a hot standby, a pooler in transaction
        mode, older than PostgreSQL 12
  71    the system refused something, such as a new process
  75    run: the lock was lost while the command ran, and the command was ended; or its release is
        in doubt
  77    wrong password, or missing privileges
  126   run: the command cannot be run
  127   run: there is no such command
  128+n ended by signal n: the command of run, or pgadvisory while it waited

Otherwise run exits with the exit code of its command.
`,
}
