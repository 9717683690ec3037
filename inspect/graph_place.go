package inspect

import (
	"cmp"
	"fmt"
	"slices"
)

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
	y := margin
	for _, part := range g.parts() {
		y += g.placePart(part, y) + gapPart
	}
	g.Height = y - gapPart + margin
}

// parts returns the nodes by the part that they belong to, the largest part first.
func (g *graph) parts() (parts [][]*node) {
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
	return parts
}

// placePart sets the position of the nodes of one part, from y downwards, and returns its height.
func (g *graph) placePart(part []*node, y int) (height int) {
	layers := map[int][]*node{}
	tallest, last := 0, 0
	for _, n := range part {
		layers[n.layer] = append(layers[n.layer], n)
		tallest = max(tallest, len(layers[n.layer]))
		last = max(last, n.layer)
	}
	height = tallest*(nodeHeight+gapY) - gapY
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
	return height
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
