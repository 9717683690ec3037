package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
)

var shells = []string{"bash", "zsh", "fish"}

// Its setup is set in init, because it refers to all commands, which include it.
var completionCommand = &command{
	name:    "completion",
	args:    "bash|zsh|fish",
	summary: "prints a script by which a shell completes subcommands and flags",
	help: `
  source <(pgadvisory completion bash)                           in ~/.bashrc
  source <(pgadvisory completion zsh)                            in ~/.zshrc, after compinit
  pgadvisory completion fish > ~/.config/fish/completions/pgadvisory.fish
`,
}

func init() {
	completionCommand.setup = func(p *program, _ *flag.FlagSet) func(context.Context, []string) error {
		return func(_ context.Context, args []string) error {
			if len(args) == 1 {
				switch args[0] {
				case "bash":
					bashCompletion(p.out)
					return nil
				case "zsh":
					zshCompletion(p.out)
					return nil
				case "fish":
					fishCompletion(p.out)
					return nil
				}
			}
			return usage("completion: name a shell: bash, zsh or fish")
		}
	}
}

// words returns what may follow a subcommand: its flags, and for some its arguments.
func (c *command) words() []string {
	var list []string
	for _, f := range c.flagList() {
		list = append(list, dashed(f.Name))
	}
	switch c {
	case completionCommand:
		list = append(list, shells...)
	case helpCommand:
		list = append(list, names()...)
		list = append(list, "connection", "keys", "exit-codes")
	}
	return list
}

func names() []string {
	var list []string
	for _, c := range commands() {
		list = append(list, c.name)
	}
	return list
}

func (c *command) flagList() []*flag.Flag {
	var list []*flag.Flag
	flags := c.flagSet()
	c.setup(&program{}, flags)
	flags.VisitAll(func(f *flag.Flag) { list = append(list, f) })
	return list
}

// dashed returns a flag as users write it.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

func bashCompletion(w io.Writer) {
	fmt.Fprintf(w, `_pgadvisory() {
	local cur=${COMP_WORDS[COMP_CWORD]} i words
	COMPREPLY=()
	if [ "$COMP_CWORD" -eq 1 ]; then
		COMPREPLY=($(compgen -W "%s" -- "$cur"))
		return
	fi
	for ((i = 2; i < COMP_CWORD; i++)); do
		if [ "${COMP_WORDS[1]}" = run ] && [ "${COMP_WORDS[i]}" = -- ]; then
			if [ $((i + 1)) -eq "$COMP_CWORD" ]; then
				COMPREPLY=($(compgen -c -- "$cur"))
			fi
			return
		fi
	done
	case ${COMP_WORDS[1]} in
`, strings.Join(names(), " "))
	for _, c := range commands() {
		fmt.Fprintf(w, "\t%s) words=%q ;;\n", c.name, strings.Join(c.words(), " "))
	}
	fmt.Fprint(w, `	esac
	COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _pgadvisory pgadvisory
`)
}

func zshCompletion(w io.Writer) {
	fmt.Fprint(w, "#compdef pgadvisory\n_pgadvisory() {\n\tlocal -a commands\n\tcommands=(\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "\t\t%s\n", single(c.name+":"+c.summary))
	}
	fmt.Fprint(w, `	)
	if ((CURRENT == 2)); then
		_describe subcommand commands
		return
	fi
	local -i i=${words[(i)--]}
	if [[ ${words[2]} == run ]] && ((i < CURRENT)); then
		words=("${(@)words[i+1,-1]}")
		((CURRENT -= i))
		_normal
		return
	fi
	case ${words[2]} in
`)
	for _, c := range commands() {
		fmt.Fprintf(w, "\t%s) compadd -- %s ;;\n", c.name, strings.Join(c.words(), " "))
	}
	// As a file in fpath, this is the body of _pgadvisory when it is first called.
	fmt.Fprint(w, `	esac
}
if [[ ${funcstack[1]} == _pgadvisory ]]; then
	_pgadvisory "$@"
else
	compdef _pgadvisory pgadvisory
fi
`)
}

func fishCompletion(w io.Writer) {
	fmt.Fprintln(w, "complete -c pgadvisory -f")
	for _, c := range commands() {
		fmt.Fprintf(w, "complete -c pgadvisory -n __fish_use_subcommand -a %s -d %s\n", c.name, single(c.summary))
	}
	for _, c := range commands() {
		of := single("__fish_seen_subcommand_from " + c.name)
		for _, f := range c.flagList() {
			value, text := flag.UnquoteUsage(f)
			kind := "-l"
			if len(f.Name) == 1 {
				kind = "-s"
			}
			needs := ""
			if value != "" {
				needs = " -x"
			}
			fmt.Fprintf(w, "complete -c pgadvisory -n %s %s %s%s -d %s\n", of, kind, f.Name, needs, single(text))
		}
		for _, word := range c.words() {
			if !strings.HasPrefix(word, "-") {
				fmt.Fprintf(w, "complete -c pgadvisory -n %s -a %s\n", of, word)
			}
		}
	}
	// __fish_complete_subcommand of fish does not work here: it uses the first word that is no flag.
	fmt.Fprint(w, `function __pgadvisory_command
	set -l all (commandline -opc) (commandline -ct)
	set -l i (contains -i -- -- $all)
	complete -C (string escape -- $all[(math $i + 1)..-1] | string join ' ')
end
complete -c pgadvisory -n '__fish_seen_subcommand_from run; and contains -- -- (commandline -opc)' -a '(__pgadvisory_command)'
`)
}

// single puts s into single quotes.
func single(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
