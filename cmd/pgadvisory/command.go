package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A command is a subcommand.
type command struct {
	name    string
	args    string // for the usage line
	summary string // one line
	help    string // details and examples

	// setup declares flags and returns the function to run with the remaining arguments.
	setup   func(p *program, flags *flag.FlagSet) func(ctx context.Context, args []string) error
	signals bool // it handles signals itself
}

// commands returns all commands, in the order of help.
func commands() []*command {
	return []*command{
		runCommand, waitCommand, keyCommand,
		lsCommand, whoCommand, graphCommand, releaseCommand, checkCommand, benchCommand,
		completionCommand, helpCommand, versionCommand,
	}
}

// findCommand returns the command that args begin with, and its arguments.
func findCommand(args []string) (*command, []string, error) {
	if len(args) == 0 {
		return nil, nil, usage("a subcommand is missing, such as run, ls or key: see pgadvisory help")
	}
	switch args[0] {
	case "-h", "-help", "--help":
		return helpCommand, args[1:], nil
	case "-V", "-version", "--version":
		return versionCommand, args[1:], nil
	}
	c := commandNamed(args[0])
	if c == nil {
		return nil, nil, usage("there is no subcommand %q: see pgadvisory help", args[0])
	}
	return c, args[1:], nil
}

func commandNamed(name string) *command {
	all := commands()
	if i := slices.IndexFunc(all, func(c *command) bool { return c.name == name }); i >= 0 {
		return all[i]
	}
	return nil
}

// parse reads the flags and returns the function to run.
func (c *command) parse(p *program, args []string) func(ctx context.Context) error {
	flags := c.flagSet()
	run := c.setup(p, flags)
	switch err := flags.Parse(beforeNumber(flags, args)); {
	case err == flag.ErrHelp:
		return func(context.Context) error { c.printHelp(p.out); return nil }
	case err != nil:
		return func(context.Context) error { return usage("%s: %v: see pgadvisory help %s", c.name, err, c.name) }
	}
	return func(ctx context.Context) error { return run(ctx, flags.Args()) }
}

// beforeNumber inserts -- before a negative number that is the first argument. Half of all keys are
// negative, and no flag is a number.
func beforeNumber(flags *flag.FlagSet, args []string) []string {
	for i := 0; i < len(args); i++ {
		name := strings.TrimLeft(args[i], "-")
		switch {
		case !strings.HasPrefix(args[i], "-") || name == "":
			return args
		case name[0] >= '0' && name[0] <= '9':
			return slices.Insert(slices.Clone(args), i, "--")
		case strings.Contains(name, "="):
			continue
		}
		f := flags.Lookup(name)
		if f == nil {
			return args
		}
		if b, ok := f.Value.(interface{ IsBoolFlag() bool }); !ok || !b.IsBoolFlag() {
			i++ // its value
		}
	}
	return args
}

func (c *command) flagSet() *flag.FlagSet {
	flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	return flags
}

// printHelp prints the help of the command.
func (c *command) printHelp(w io.Writer) {
	fmt.Fprintf(w, "pgadvisory %s: %s\n\nusage: pgadvisory %s\n", c.name, c.summary, strings.TrimSpace(c.name+" "+c.args))
	if c.help != "" {
		fmt.Fprintf(w, "\n%s\n", strings.Trim(c.help, "\n"))
	}
	flags := c.flagSet()
	c.setup(&program{}, flags)
	any := false
	flags.VisitAll(func(f *flag.Flag) {
		if !any {
			fmt.Fprintln(w, "\nflags:")
			any = true
		}
		name, text := flagHelp(f)
		fmt.Fprintf(w, "  %-24s %s\n", name, text)
	})
}

// flagHelp returns a flag with the name of its value, and what it does.
func flagHelp(f *flag.Flag) (name, text string) {
	value, text := flag.UnquoteUsage(f)
	name = dashed(f.Name)
	if value != "" {
		name += " " + value
	}
	if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0s" {
		text += " (by default " + f.DefValue + ")"
	}
	return name, text
}

// noArgs returns an error if there are arguments.
func noArgs(name string, args []string) error {
	if len(args) > 0 {
		return usage("%s takes no arguments, but there is %q: see pgadvisory help %s", name, args[0], name)
	}
	return nil
}
