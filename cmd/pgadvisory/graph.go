package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/inspect"
)

var graphCommand = &command{
	name:    "graph",
	args:    "[flags]",
	summary: "draws who waits for whom, as text or for Graphviz",
	help: `
As text, sessions stand below the one that they wait for. Sessions that wait for each other are
marked.

  pgadvisory graph
  pgadvisory graph --dot | dot -Tsvg > waits.svg
`,
	setup: func(p *program, flags *flag.FlagSet) func(context.Context, []string) error {
		t := connection(flags)
		dot := flags.Bool("dot", false, "print the graph in the dot language, for Graphviz")
		return func(ctx context.Context, args []string) error {
			if err := noArgs("graph", args); err != nil {
				return err
			}
			db, err := t.open(ctx, "pgadvisory graph")
			if err != nil {
				return err
			}
			defer db.Close()
			locks, err := inspect.Locks(ctx, db)
			if err != nil {
				return err
			}
			g := waitsOf(locks)
			if *dot {
				g.dot(p.out)
			} else {
				g.text(p.out)
			}
			return nil
		}
	},
}

// A waits has who waits for whom, by pid; 0 is a prepared transaction.
type waits struct {
	pids     []int // all that wait or are waited for, in order
	of       map[int][]inspect.Lock
	blockers map[int][]int
	blocked  map[int][]int
}

func waitsOf(locks []inspect.Lock) *waits {
	g := &waits{of: map[int][]inspect.Lock{}, blockers: map[int][]int{}, blocked: map[int][]int{}}
	for _, l := range locks {
		g.of[l.PID] = append(g.of[l.PID], l)
		for _, pid := range l.WaitsFor {
			g.add(l.PID, pid)
		}
	}
	slices.Sort(g.pids)
	return g
}

func (g *waits) add(waiter, blocker int) {
	for _, pid := range []int{waiter, blocker} {
		if !slices.Contains(g.pids, pid) {
			g.pids = append(g.pids, pid)
		}
	}
	if !slices.Contains(g.blockers[waiter], blocker) {
		g.blockers[waiter] = append(g.blockers[waiter], blocker)
		g.blocked[blocker] = append(g.blocked[blocker], waiter)
	}
}

// describe returns what a session holds and waits for.
func (g *waits) describe(pid int) string {
	name := "pid " + session(pid)
	if pid == 0 {
		name = "a prepared transaction"
	}
	const most = 5
	var held, wanted []string
	for _, l := range g.of[pid] {
		list, what := &wanted, fmt.Sprintf("%v", l.Key)
		if l.Granted {
			list = &held
		}
		if l.Mode == advisory.Shared {
			what += " shared"
		}
		if !l.Granted && l.Age > 0 {
			what += " for " + age(l.Age)
		}
		*list = append(*list, what)
	}
	if len(g.of[pid]) > 0 && g.of[pid][0].Application != "" {
		name += " " + clean(g.of[pid][0].Application)
	}
	for _, each := range []struct {
		verb string
		list []string
	}{{"holds", held}, {"waits for", wanted}} {
		list := each.list
		if len(list) > most {
			list = append(slices.Clone(list[:most]), fmt.Sprintf("%d more", len(list)-most))
		}
		if len(list) > 0 {
			name += ", " + each.verb + " " + strings.Join(list, " and ")
		}
	}
	return name
}

func (g *waits) text(w io.Writer) {
	if len(g.pids) == 0 {
		fmt.Fprintln(w, "nobody waits")
		return
	}
	printed := map[int]bool{}
	for _, pid := range g.pids {
		if len(g.blockers[pid]) == 0 {
			g.tree(w, pid, nil, printed)
		}
	}
	for _, pid := range g.pids { // sessions that wait for each other have no first
		if !printed[pid] {
			g.tree(w, pid, nil, printed)
		}
	}
}

// tree prints a session and, below it, those that wait for it.
func (g *waits) tree(w io.Writer, pid int, above []int, printed map[int]bool) {
	indent := strings.Repeat("    ", len(above))
	switch {
	case slices.Contains(above, pid):
		fmt.Fprintf(w, "%spid %s again: they wait for each other\n", indent, session(pid))
		return
	case printed[pid]:
		fmt.Fprintf(w, "%spid %s, see above\n", indent, session(pid))
		return
	}
	printed[pid] = true
	fmt.Fprintf(w, "%s%s\n", indent, g.describe(pid))
	for _, next := range g.blocked[pid] {
		g.tree(w, next, append(slices.Clone(above), pid), printed)
	}
}

func (g *waits) dot(w io.Writer) {
	fmt.Fprintln(w, "digraph waits {\n\trankdir=LR;\n\tnode [shape=box];")
	for _, pid := range g.pids {
		fmt.Fprintf(w, "\t%q [label=%s];\n", session(pid), dotString(strings.ReplaceAll(g.describe(pid), ", ", "\n")))
	}
	for _, pid := range g.pids {
		for _, blocker := range g.blockers[pid] {
			fmt.Fprintf(w, "\t%q -> %q;\n", session(pid), session(blocker))
		}
	}
	fmt.Fprintln(w, "}")
}

// dotString returns a string of the dot language, in which a backslash has more meanings than in Go.
func dotString(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}
