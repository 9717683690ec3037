package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/inspect"
	"github.com/pgadvisory/pgadvisory/internal/failover"
)

var checkCommand = &command{
	name:    "check",
	args:    "[flags]",
	summary: "checks whether locks exclude on this server, and lists those that look like an incident",
	help: `
The exit code is 69 if locks do not exclude: behind a pooler in transaction mode, on a hot standby, or on
a server some of whose functions lock nothing. With --strict it is 1 if there is a warning or a suspect.

  pgadvisory check
  pgadvisory check --strict --after 60
  pgadvisory check --promoted-after 20       compares the failover manager's time with the locks'

The finding "failover" says whether commits wait for a standby, and whether holders of locks stop before
a standby is promoted. The server does not know after how long that is: give it with --promoted-after.

If the connection string names several hosts, the finding "connect_timeout" says whether a host that went
silent lets a Locker reach the next one in time.
`,
	setup: func(p *program, flags *flag.FlagSet) func(context.Context, []string) error {
		t := connection(flags)
		strict := flags.Bool("strict", false, "exit code 1 if there is a warning or a suspect")
		asJSON := flags.Bool("json", false, "print an object of JSON, on one line")
		var promoted seconds
		flags.Var(&promoted, "promoted-after", "the failover manager promotes a standby so many `SECONDS` after the primary's last answer, at the earliest")
		within := seconds{Duration: failover.Default}
		flags.Var(&within, "failover", "the failover time of the programs' locks in `SECONDS`, as run --failover and locker.WithFailover")
		after := seconds{Duration: 5 * time.Minute}
		flags.Var(&after, "after", "report sessions that hold a lock and have been idle, or have waited, for so many `SECONDS`; at least 2")
		return func(ctx context.Context, args []string) error {
			if err := noArgs("check", args); err != nil {
				return err
			}
			if after.Duration < 2*time.Second {
				return usage("check: --after %v: give at least 2s", after.Duration)
			}
			if within.Duration < failover.Min || within.Duration > failover.Max {
				return usage("check: --failover %v: it is from %v to %vh", within.Duration, failover.Min, failover.Max.Hours())
			}
			s, err := t.settings()
			if err != nil {
				return err
			}
			db, _, err := s.open(ctx, "pgadvisory check")
			if err != nil {
				return err
			}
			defer db.Close()
			report, err := inspect.Check(ctx, db, inspect.PromotedAfter(promoted.Duration), inspect.Failover(within.Duration))
			if err != nil {
				return err
			}
			if f, ok, err := s.silentHost(); err != nil {
				return err
			} else if ok {
				report.Findings = append(report.Findings, f)
			}
			var suspects []inspect.Suspect
			if report.Err() == nil {
				if suspects, err = inspect.Suspects(ctx, db, inspect.After(after.Duration)); err != nil {
					return err
				}
			}
			if *asJSON {
				err := json.NewEncoder(p.out).Encode(struct {
					*inspect.Report
					Suspects []inspect.Suspect `json:"suspects,omitempty"`
				}{report, suspects})
				if err != nil {
					return err
				}
			} else {
				fmt.Fprint(p.out, report)
				for _, s := range suspects {
					fmt.Fprintf(p.out, "suspect  %s\n", s)
				}
			}
			switch {
			case report.Err() != nil:
				return report.Err()
			case *strict && (report.Verdict() != inspect.OK || len(suspects) > 0):
				return exit(exitNo)
			}
			return nil
		}
	},
}
