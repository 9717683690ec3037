package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/pgadvisory/pgadvisory/inspect"
)

var whoCommand = &command{
	name:    "who",
	args:    "[flags] KEY",
	summary: "says who holds a lock, and who waits for it",
	help: `
Exit code 1 if nobody holds it.

  pgadvisory who name:nightly
`,
	setup: func(p *program, flags *flag.FlagSet) func(context.Context, []string) error {
		t := connection(flags)
		asJSON := flags.Bool("json", false, "print an array of JSON, on one line")
		return func(ctx context.Context, args []string) error {
			key, err := oneKey("who", args)
			if err != nil {
				return err
			}
			db, err := t.open(ctx, "pgadvisory who")
			if err != nil {
				return err
			}
			defer db.Close()
			all, err := inspect.Locks(ctx, db)
			if err != nil {
				return err
			}
			var locks []inspect.Lock
			code := exitNo
			for _, l := range all {
				if l.Key == key {
					locks = append(locks, l)
					if l.Granted {
						code = 0
					}
				}
			}
			if *asJSON {
				if err := writeJSON(p.out, locks); err != nil {
					return err
				}
				return exit(code)
			}
			if code != 0 {
				fmt.Fprintf(p.out, "nobody holds %v\n", key)
			}
			for _, l := range locks {
				fmt.Fprintln(p.out, l)
			}
			if database, err := databaseName(ctx, db); err == nil {
				if tool := toolOf(key, database); tool != "" {
					fmt.Fprintf(p.out, "%v is the key of %s\n", key, tool)
				}
			}
			return exit(code)
		}
	},
}
