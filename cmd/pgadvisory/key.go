package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strconv"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/interop"
)

var keyCommand = &command{
	name:    "key",
	args:    "[flags] KEY",
	summary: "prints a key in every form, the SQL for it, and the tool that it belongs to; needs no server",
	help: `
Many tools compute their key from the name of the database: give it with --database to recognise such
a key. See pgadvisory help keys for the forms.

  pgadvisory key name:billing/eu
  pgadvisory key --database app 1787120056
`,
	setup: func(p *program, flags *flag.FlagSet) func(context.Context, []string) error {
		database := flags.String("database", "", "the `NAME` of the database, to recognise keys that are computed from it")
		return func(_ context.Context, args []string) error {
			key, err := oneKey("key", args)
			if err != nil {
				return err
			}
			printKey(p.out, key, args[0], *database)
			return nil
		}
	},
}

func printKey(w io.Writer, key advisory.Key, given, database string) {
	line := func(what string, values ...any) { fmt.Fprintf(w, "%-14s %s\n", what, fmt.Sprint(values...)) }
	line("key", key)
	if given != key.String() {
		line("made of", given)
	}
	class, object, subid := parts(key)
	if n, ok := key.Int64(); ok {
		line("bigint", n)
		line("hexadecimal", fmt.Sprintf("0x%016x", uint64(n)))
		line("Go", "advisory.Int64("+strconv.FormatInt(n, 10)+")")
	} else {
		line("pair", key.SQL())
		line("hexadecimal", fmt.Sprintf("0x%08x, 0x%08x", class, object))
		line("Go", "advisory.Pair("+key.SQL()+")")
	}
	tool := interop.Identify(key, database)
	if tool == "" {
		tool = "none that is known by its key"
	}
	line("tool", tool)
	fmt.Fprintf(w, `
-- to paste into psql
SELECT pg_try_advisory_lock(%[1]s);       -- this session; then SELECT pg_advisory_unlock(%[1]s);
SELECT pg_try_advisory_xact_lock(%[1]s);  -- to the end of this transaction
SELECT pid, mode, granted FROM pg_locks   -- who has it and who waits
WHERE locktype = 'advisory' AND classid = %[2]d AND objid = %[3]d AND objsubid = %[4]d
AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
`, key.SQL(), class, object, subid)
}

// parts returns the columns of the key in pg_locks.
func parts(key advisory.Key) (classid, objid uint32, objsubid int) {
	if n, ok := key.Int64(); ok {
		return uint32(uint64(n) >> 32), uint32(n), 1
	}
	class, object, _ := key.Pair()
	return uint32(class), uint32(object), 2
}

// oneKey returns the key that is the only argument.
func oneKey(name string, args []string) (advisory.Key, error) {
	switch len(args) {
	case 0:
		return advisory.Key{}, usage("%s: a key is missing: see pgadvisory help keys", name)
	case 1:
		return advisory.ParseKey(args[0])
	}
	return advisory.Key{}, usage("%s: give one key only, but there is also %q; put flags before the key", name, args[1])
}
