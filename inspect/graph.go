package inspect

import (
	"cmp"
	"fmt"
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

// An id identifies a session or a prepared transaction.
type id struct {
	pid int
	gid string
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
	nodes := map[id]*node{}
	holders := map[advisory.Key][]id{}
	waiting := map[id]Lock{}
	held := map[id][]Lock{}
	waits := map[id][]int{}
	info := map[id]Lock{}
	var order []id // the waiting sessions, the longest wait first
	for _, l := range locks {
		n := id{l.PID, l.Prepared}
		info[n] = l
		if l.Granted {
			if own := held[n]; len(own) == 0 || own[len(own)-1].Key != l.Key { // a session may hold it in both modes
				holders[l.Key] = append(holders[l.Key], n)
			}
			held[n] = append(held[n], l)
		} else {
			waiting[n] = l
		}
		if len(l.WaitsFor) > 0 && waits[n] == nil {
			waits[n] = l.WaitsFor
			order = append(order, n)
		}
	}
	if len(order) == 0 {
		return nil
	}
	slices.SortStableFunc(order, func(a, b id) int { return -cmp.Compare(waiting[a].Age, waiting[b].Age) })

	g := &graph{}
	left := map[id]bool{}
	add := func(i id) *node {
		if n := nodes[i]; n != nil {
			return n
		}
		if len(g.Nodes) == maxNodes {
			left[i] = true
			return nil
		}
		n := &node{id: i, PID: i.pid, Name: fmt.Sprintf("pid %d", i.pid), holds: len(held[i]) > 0, age: int64(waiting[i].Age)}
		if i.pid == 0 {
			n.Name = "prepared"
		}
		nodes[i] = n
		delete(left, i)
		g.Nodes = append(g.Nodes, n)
		return n
	}
	for _, w := range order {
		blockers := blockersOf(waits[w], waiting[w], holders)
		// Add the blockers first: an arrow needs both ends.
		var to []*node
		for len(blockers) > maxLine {
			last := blockers[len(blockers)-1]
			if nodes[last] == nil {
				left[last] = true
			}
			g.Arrows++
			blockers = blockers[:len(blockers)-1]
		}
		for _, b := range blockers {
			if n := add(b); n != nil {
				to = append(to, n)
			}
		}
		behind := slices.ContainsFunc(held[w], func(l Lock) bool { return len(l.WaitedForBy) > 0 })
		if !behind && nodes[w] == nil && len(to) > 0 && !slices.ContainsFunc(to, func(n *node) bool { return n.waiters < maxLine }) {
			left[w] = true
			g.Arrows += len(to)
			continue
		}
		from := add(w)
		for _, b := range to {
			switch {
			case from == nil || len(g.Edges) == maxEdges:
				g.Arrows++
			default:
				from.waits = append(from.waits, b)
				b.waiters++
				g.Edges = append(g.Edges, edge{})
			}
		}
	}
	g.LeftOut = len(left)
	g.Edges = g.Edges[:0]

	for _, n := range g.Nodes {
		n.describe(info[n.id], held[n.id], waiting[n.id], suspect[n.id])
	}
	g.layers()
	g.place()
	g.arrows()
	return g
}

// blockersOf returns the sessions that a waiting session points to: the holders that keep it
// waiting. If there is none, it returns the last session in the queue before it. An arrow to each
// session of the queue would hide the rest of the drawing.
func blockersOf(waitsFor []int, w Lock, holders map[advisory.Key][]id) []id {
	var hard, soft []id
	if w.PID != 0 {
		blocks := make(map[int]bool, len(waitsFor))
		for _, pid := range waitsFor {
			blocks[pid] = true
		}
		for _, h := range holders[w.Key] {
			if blocks[h.pid] {
				hard = append(hard, h)
			}
		}
	}
	if len(hard) > 0 {
		return hard
	}
	for _, pid := range waitsFor {
		soft = append(soft, id{pid: pid})
	}
	if w.PID != 0 && len(soft) > 1 {
		soft = soft[len(soft)-1:]
	}
	return soft
}

func (n *node) describe(l Lock, held []Lock, w Lock, suspect bool) {
	n.Width, n.Height = nodeWidth, nodeHeight
	n.Class = "node"
	n.Title = n.Name
	if n.id.gid != "" {
		n.Name += " " + clip(clean(n.id.gid), lineLength-len(n.Name))
		n.Title += " " + clean(n.id.gid)
	}
	if l.Application != "" {
		n.Name += " · " + clip(clean(l.Application), lineLength-len(n.Name)-6)
		n.Title += ", application " + clean(l.Application)
	}
	if l.User != "" {
		n.Title += ", user " + clean(l.User)
	}
	if len(held) > 0 {
		n.Class += " holder"
		line := heldLine(held)
		if len(held) > 1 {
			line += fmt.Sprintf(" and %d more", len(held)-1)
		}
		n.Lines = append(n.Lines, clip(line, lineLength))
		n.Title += "; " + line
	}
	switch {
	case w.PID != 0:
		n.Class += " waiter"
		line := "waits for " + w.Key.String()
		if w.Mode == advisory.Shared {
			line += " shared"
		}
		if w.Age > 0 {
			line += ", " + round(w.Age).String()
		}
		n.Lines = append(n.Lines, clip(line, lineLength))
		n.Title += "; " + line
	case len(l.WaitsFor) > 0:
		n.Class += " waiter"
		n.Lines = append(n.Lines, "waits for something else")
		n.Title += "; waits for something that is no advisory lock"
	case len(held) == 0:
		n.Lines = append(n.Lines, "has no advisory lock")
	case l.State != "":
		line := l.State
		if l.StateAge > 0 && l.PID != 0 {
			line += " for " + round(l.StateAge).String()
		}
		n.Lines = append(n.Lines, clip(line, lineLength))
		n.Title += "; " + line
	}
	if suspect {
		n.Class += " suspect"
		n.Title += "; suspect"
	}
}

// heldLine names one of the held locks: the first that others wait for, or the first.
func heldLine(held []Lock) string {
	shown := held[0]
	if i := slices.IndexFunc(held, func(h Lock) bool { return len(h.WaitedForBy) > 0 }); i >= 0 {
		shown = held[i]
	}
	line := "holds " + shown.Key.String()
	if shown.Mode == advisory.Shared {
		line += " shared"
	}
	return line
}

// layers sets the layer of each node, one to the right of those that it waits for. It ignores an
// arrow that closes a circle.
func (g *graph) layers() {
	const (
		fresh = iota
		open
		done
	)
	var visit func(n *node)
	visit = func(n *node) {
		n.state = open
		for _, b := range n.waits {
			if b.state == fresh {
				visit(b)
			}
			if b.state == done {
				n.layer = max(n.layer, b.layer+1)
			}
		}
		n.state = done
	}
	for _, n := range g.Nodes {
		if n.state == fresh {
			visit(n)
		}
	}
}

// place sets the position of each node. Parts that are not connected are below each other.
func (g *graph) place() {
	root := map[*node]*node{}
	var find func(n *node) *node
	find = func(n *node) *node {
		if r := root[n]; r != nil && r != n {
			root[n] = find(r)
			return root[n]
		}
		return n
	}
	for _, n := range g.Nodes {
		for _, b := range n.waits {
			if x, y := find(n), find(b); x != y {
				root[x] = y
			}
		}
	}
	var parts [][]*node
	at := map[*node]int{}
	for _, n := range g.Nodes {
		r := find(n)
		i, ok := at[r]
		if !ok {
			i = len(parts)
			at[r] = i
			parts = append(parts, nil)
		}
		n.part = i
		parts[i] = append(parts[i], n)
	}
	slices.SortStableFunc(parts, func(a, b []*node) int { return -cmp.Compare(len(a), len(b)) })

	y := margin
	for _, part := range parts {
		layers := map[int][]*node{}
		tallest, last := 0, 0
		for _, n := range part {
			layers[n.layer] = append(layers[n.layer], n)
			tallest = max(tallest, len(layers[n.layer]))
			last = max(last, n.layer)
		}
		height := tallest*(nodeHeight+gapY) - gapY
		for i := 0; i <= last; i++ {
			layer := layers[i]
			slices.SortStableFunc(layer, func(a, b *node) int {
				return cmp.Or(cmp.Compare(a.middle(), b.middle()), -cmp.Compare(a.age, b.age))
			})
			top := y + (height-(len(layer)*(nodeHeight+gapY)-gapY))/2
			for j, n := range layer {
				n.X, n.Y = margin+i*(nodeWidth+gapX), top+j*(nodeHeight+gapY)
				g.Width = max(g.Width, n.X+nodeWidth+margin)
			}
		}
		y += height + gapPart
	}
	g.Height = y - gapPart + margin
}

// middle returns the mean height of the nodes that n waits for and that are placed already.
func (n *node) middle() int {
	sum, count := 0, 0
	for _, b := range n.waits {
		if b.layer < n.layer {
			sum += b.Y
			count++
		}
	}
	if count == 0 {
		return 0
	}
	return sum / count
}

func (g *graph) arrows() {
	for _, n := range g.Nodes {
		for _, b := range n.waits {
			e := edge{Waiter: n.key(), Blocker: b.key(), Class: "edge"}
			y1, y2 := n.Y+nodeHeight/2, b.Y+nodeHeight/2
			x1, x2 := n.X, b.X+nodeWidth
			bend := -(x1 - x2) / 2
			if b.layer >= n.layer { // the arrow closes a circle
				e.Class = "edge back"
				x1, x2 = n.X+nodeWidth, b.X
				bend = max((x2-x1)/2, gapX/2)
				y1, y2 = y1+nodeHeight/4, y2+nodeHeight/4
			}
			gap := 7 // for the head of the arrow
			if x2 > x1 {
				gap = -gap
			}
			e.Path = fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1, x1+bend, y1, x2+gap-bend, y2, x2+gap, y2)
			g.Edges = append(g.Edges, e)
		}
	}
}

func (n *node) key() string {
	if n.id.pid == 0 {
		return "prepared"
	}
	return strconv.Itoa(n.id.pid)
}

// clip shortens a text to n characters.
func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= max(n, 1) {
		return s
	}
	return string(r[:max(n-1, 1)]) + "…"
}
