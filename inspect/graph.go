package inspect

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// A graph is the drawing of who waits for whom. Sessions are in layers, with those that wait for no
// one on the left. An arrow leads from each session to those that it waits for.
type graph struct {
	Width, Height int
	Nodes         []*node
	Edges         []edge
	// LeftOut counts the sessions, and Arrows the arrows, that are not drawn.
	LeftOut, Arrows int
}

type node struct {
	Name    string // "pid 812"
	PID     int
	Lines   []string // what it holds and waits for
	Title   string   // the full text
	Class   string
	X, Y    int
	Width   int
	Height  int
	id      id
	waits   []*node // whom it waits for
	waiters int
	layer   int
	part    int // which separate drawing it belongs to
	state   int // during a walk
	age     int64
	holds   bool
}

type edge struct {
	Path            string
	Waiter, Blocker string
	Class           string
}

const (
	nodeWidth  = 232
	nodeHeight = 66
	gapX       = 72
	gapY       = 14
	gapPart    = 18
	margin     = 8

	maxNodes = 60
	maxEdges = 240
	maxLine  = 12 // limit of waiters of one session that block no one themselves, and of blockers of one session

	lineLength = 34 // of the text in a node
)

// newGraph draws the waits among locks, or returns nil if there are none.
func newGraph(locks []Lock, suspect map[id]bool) *graph {
	s := sessionsOf(locks)
	if len(s.waiters) == 0 {
		return nil
	}
	g := s.selectNodes()
	for _, n := range g.Nodes {
		n.describe(s.info[n.id], s.held[n.id], s.waiting[n.id], suspect[n.id])
	}
	g.layers()
	g.place()
	g.arrows()
	return g
}

// graphSessions are the sessions that have locks or wait for one, as a graph needs them.
type graphSessions struct {
	info     map[id]Lock // one of the rows of a session
	held     map[id][]Lock
	waiting  map[id]Lock
	waitsFor map[id][]int
	holders  map[advisory.Key][]id
	waiters  []id // the longest wait first
}

func sessionsOf(locks []Lock) *graphSessions {
	s := &graphSessions{
		info: map[id]Lock{}, held: map[id][]Lock{}, waiting: map[id]Lock{}, waitsFor: map[id][]int{},
		holders: map[advisory.Key][]id{},
	}
	for _, l := range locks {
		n := l.id()
		s.info[n] = l
		if l.Granted {
			if own := s.held[n]; len(own) == 0 || own[len(own)-1].Key != l.Key { // a session may hold it in both modes
				s.holders[l.Key] = append(s.holders[l.Key], n)
			}
			s.held[n] = append(s.held[n], l)
		} else {
			s.waiting[n] = l
		}
		if len(l.WaitsFor) > 0 && s.waitsFor[n] == nil {
			s.waitsFor[n] = l.WaitsFor
			s.waiters = append(s.waiters, n)
		}
	}
	slices.SortStableFunc(s.waiters, func(a, b id) int { return -cmp.Compare(s.waiting[a].Age, s.waiting[b].Age) })
	return s
}

// blocks reports whether somebody waits for the session.
func (s *graphSessions) blocks(i id) bool {
	return slices.ContainsFunc(s.held[i], func(l Lock) bool { return len(l.WaitedForBy) > 0 })
}

func (n *node) key() string {
	if n.id.pid == 0 {
		return "prepared"
	}
	return strconv.Itoa(n.id.pid)
}
