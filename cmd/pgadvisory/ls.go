package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/pgadvisory/pgadvisory/inspect"
)

var lsCommand = &command{
	name:    "ls",
	args:    "[flags]",
	summary: "lists the advisory locks of a database: who holds them, and who waits",
	help: `
AGE is how long a wait has lasted; of a lock that is held, how long ago its session began its
transaction or, between two, ended its last statement: PostgreSQL does not record when a lock was
taken. Locks of extensions, which are on no key, are left out and counted. The state and the client of other roles' sessions are shown to roles with the rights of
pg_read_all_stats only.

  pgadvisory ls
  pgadvisory ls --watch
  pgadvisory ls --json | jq '.[] | select(.granted | not)'
`,
	setup: func(p *program, flags *flag.FlagSet) func(context.Context, []string) error {
		t := connection(flags)
		asJSON := flags.Bool("json", false, "print an array of JSON, on one line")
		watch := flags.Bool("watch", false, "repeat until Ctrl-C")
		every := seconds{Duration: time.Second}
		flags.Var(&every, "every", "with --watch: repeat after so many `SECONDS`")
		return func(ctx context.Context, args []string) error {
			if err := noArgs("ls", args); err != nil {
				return err
			}
			db, err := t.open(ctx, "pgadvisory ls")
			if err != nil {
				return err
			}
			defer db.Close()
			if !*watch {
				return p.ls(ctx, db, *asJSON)
			}
			for {
				if !*asJSON && isTerminal(p.out) {
					fmt.Fprint(p.out, "\x1b[H\x1b[2J")
				}
				if err := p.ls(ctx, db, *asJSON); err != nil && ctx.Err() == nil {
					return err
				}
				select {
				case <-ctx.Done():
					return nil // a signal is the normal end of a watch
				case <-time.After(max(every.Duration, 50*time.Millisecond)):
				}
			}
		}
	},
}

func (p *program) ls(ctx context.Context, db *sql.DB, asJSON bool) error {
	locks, err := inspect.Locks(ctx, db)
	if err != nil {
		return err
	}
	if asJSON {
		err = writeJSON(p.out, locks)
	} else {
		var database string
		if database, err = databaseName(ctx, db); err == nil {
			err = table(p.out, locks, database)
		}
	}
	if err != nil {
		return err
	}
	foreign, err := inspect.Foreign(ctx, db)
	if err == nil && foreign > 0 {
		fmt.Fprintf(p.err, "locks of extensions left out: %d (on no key, because objsubid is neither 1 nor 2)\n", foreign)
	}
	return err
}

func table(w io.Writer, locks []inspect.Lock, database string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tMODE\t\tPID\tUSER\tAPPLICATION\tCLIENT\tSTATE\tAGE\tWAITS FOR\tTOOL")
	for _, l := range locks {
		what := "holds"
		if !l.Granted {
			what = "waits"
		}
		pid := fmt.Sprint(l.PID)
		if l.PID == 0 {
			pid = "-"
		}
		fmt.Fprintf(t, "%v\t%v\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Key, l.Mode, what, pid,
			cell(l.User), cell(l.Application), cell(l.Client), cell(l.State), age(l.Age), pids(l.WaitsFor), toolOf(l.Key, database))
	}
	return t.Flush()
}

func databaseName(ctx context.Context, db *sql.DB) (name string, err error) {
	err = db.QueryRowContext(ctx, "SELECT pg_catalog.current_database()::pg_catalog.text").Scan(&name)
	return name, err
}

// writeJSON writes an array. It writes an empty one if list is nil.
func writeJSON[T any](w io.Writer, list []T) error {
	if list == nil {
		list = []T{}
	}
	return json.NewEncoder(w).Encode(list)
}
