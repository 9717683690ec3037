package main

import (
	"context"
	"flag"
	"fmt"
	"runtime/debug"
)

var versionCommand = &command{
	name:    "version",
	summary: "prints the version of pgadvisory",
	setup: func(p *program, _ *flag.FlagSet) func(context.Context, []string) error {
		return func(_ context.Context, args []string) error {
			if err := noArgs("version", args); err != nil {
				return err
			}
			fmt.Fprintln(p.out, "pgadvisory", version())
			return nil
		}
	},
}

// version returns the version of the module that the go tool has recorded and, for a build of a
// checkout, its revision.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	v := info.Main.Version
	if v == "" {
		v = "(devel)"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && v == "(devel)" {
			v += " " + s.Value
		}
	}
	return v + " " + info.GoVersion
}
