package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"strings"

	"github.com/pgadvisory/pgadvisory/inspect"
)

var whoCommand = &command{
	name:    "who",
	args:    "[flags] KEY",
	summary: "lists who holds a lock, and who waits for it",
	help: `
The exit code is 1 if nobody holds the lock. A key that was given in another form, such as name:nightly,
is printed in both forms; in JSON made_of is the given form.

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
			shown := key.String()
			if given := args[0]; given != shown {
				shown = fmt.Sprintf("%s (%v)", clean(given), key)
			}
			if *asJSON {
				if err := writeJSON(p.out, madeOf(locks, args[0])); err != nil {
					return err
				}
				return exit(code)
			}
			if code != 0 {
				fmt.Fprintf(p.out, "nobody holds %s\n", shown)
			}
			for _, l := range locks {
				fmt.Fprintln(p.out, shown+strings.TrimPrefix(l.String(), key.String()))
			}
			if database, err := databaseName(ctx, db); err == nil {
				if tool := toolOf(key, database); tool != "" {
					fmt.Fprintf(p.out, "%s is the key of %s\n", shown, tool)
				}
			}
			return exit(code)
		}
	},
}

// A lockOf is a lock whose JSON also contains the given form of its key, if that differs.
type lockOf struct {
	inspect.Lock
	given string
}

func madeOf(locks []inspect.Lock, given string) (list []lockOf) {
	for _, l := range locks {
		list = append(list, lockOf{l, given})
	}
	return list
}

func (l lockOf) MarshalJSON() ([]byte, error) {
	object, err := json.Marshal(l.Lock)
	if err != nil || l.given == l.Key.String() {
		return object, err
	}
	given, err := json.Marshal(l.given)
	return append(object[:len(object)-1], `,"made_of":`+string(given)+"}"...), err
}
