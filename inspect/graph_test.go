package inspect

import (
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
)

func holds(pid, key int) Lock { return Lock{Key: advisory.Int64(int64(key)), Granted: true, PID: pid} }

func waits(pid, key int, age time.Duration, waitsFor ...int) Lock {
	return Lock{Key: advisory.Int64(int64(key)), PID: pid, WaitsFor: waitsFor, Age: age}
}

// arrows says who points to whom.
func (g *graph) text() string {
	var s []string
	for _, e := range g.Edges {
		s = append(s, e.Waiter+">"+e.Blocker)
	}
	return strings.Join(s, " ")
}

func TestGraph(t *testing.T) {
	for name, c := range map[string]struct {
		locks []Lock
		want  string
	}{
		"a queue points to the holder":              {[]Lock{holds(1, 7), waits(2, 7, 3, 1), waits(3, 7, 2, 1, 2), waits(4, 7, 1, 1, 2, 3)}, "2>1 3>1 4>1"},
		"a reader behind a writer among readers":    {[]Lock{holds(1, 7), waits(2, 7, 2, 1), waits(3, 7, 1, 2)}, "2>1 3>2"},
		"a chain":                                   {[]Lock{holds(1, 7), holds(2, 8), waits(2, 7, 2, 1), waits(3, 8, 1, 2)}, "2>1 3>2"},
		"a circle":                                  {[]Lock{holds(1, 7), holds(2, 8), waits(1, 8, 2, 2), waits(2, 7, 1, 1)}, "2>1 1>2"},
		"who waits for something else":              {[]Lock{{Key: advisory.Int64(7), Granted: true, PID: 1, WaitsFor: []int{9}}}, "1>9"},
		"a prepared transaction":                    {[]Lock{{Key: advisory.Int64(7), Granted: true, Prepared: "x"}, waits(2, 7, 1, 0)}, "2>prepared"},
		"all who hold it together":                  {[]Lock{holds(1, 7), holds(2, 7), holds(3, 7), waits(4, 7, 1, 1, 2)}, "4>1 4>2"},
		"one whose blocker has gone from the locks": {[]Lock{waits(4, 7, 1, 1)}, "4>1"},
	} {
		g := newGraph(c.locks, nil)
		if g == nil {
			t.Errorf("%s: nothing", name)
			continue
		}
		if got := sorted(g.text()); got != sorted(c.want) {
			t.Errorf("%s: %s, not %s", name, got, c.want)
		}
		for i, n := range g.Nodes {
			if n.X < 0 || n.Y < 0 || n.X+n.Width > g.Width || n.Y+n.Height > g.Height {
				t.Errorf("%s: %s is out of the drawing", name, n.Name)
			}
			for _, m := range g.Nodes[:i] {
				if n.X < m.X+m.Width && m.X < n.X+n.Width && n.Y < m.Y+m.Height && m.Y < n.Y+n.Height {
					t.Errorf("%s: %s is upon %s", name, n.Name, m.Name)
				}
			}
		}
	}
	if g := newGraph([]Lock{holds(1, 7), holds(2, 8)}, nil); g != nil {
		t.Error("a graph of no wait")
	}
}

func sorted(s string) string {
	words := strings.Fields(s)
	for i := range words {
		for j := range i {
			if words[i] < words[j] {
				words[i], words[j] = words[j], words[i]
			}
		}
	}
	return strings.Join(words, " ")
}

// A graph of thousands has few nodes and arrows, and says how many it lacks.
func TestGraphOfMany(t *testing.T) {
	var locks []Lock
	var holders []int
	for pid := range 1000 {
		holders = append(holders, pid+1)
		locks = append(locks, holds(pid+1, 7))
	}
	for pid := range 1000 {
		locks = append(locks, waits(2000+pid, 7, 1, holders...))
	}
	g := newGraph(locks, nil)
	if len(g.Nodes) > maxNodes || len(g.Edges) > maxEdges || len(g.Edges) == 0 || len(g.Nodes)+g.LeftOut != 2000 {
		t.Errorf("%d nodes and %d left out, %d edges and %d", len(g.Nodes), g.LeftOut, len(g.Edges), g.Arrows)
	}
	// A long chain.
	locks = locks[:0]
	for pid := range 1000 {
		locks = append(locks, holds(pid+1, pid+1), waits(pid+1, pid+2, time.Duration(pid), pid+2))
	}
	if g := newGraph(locks, nil); len(g.Nodes) != maxNodes || g.LeftOut+maxNodes < 900 {
		t.Errorf("%d nodes, %d left out", len(g.Nodes), g.LeftOut)
	}
}
