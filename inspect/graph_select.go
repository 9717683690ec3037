package inspect

import (
	"fmt"
	"slices"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// selectNodes returns a graph of the sessions that there is room for, and counts the others.
func (s *graphSessions) selectNodes() *graph {
	sel := selection{graphSessions: s, graph: &graph{}, nodes: map[id]*node{}, left: map[id]bool{}}
	for _, w := range s.waiters {
		sel.addWaiter(w)
	}
	sel.graph.LeftOut = len(sel.left)
	return sel.graph
}

// A selection is the part of the sessions that the graph has so far.
type selection struct {
	*graphSessions
	graph  *graph
	nodes  map[id]*node
	left   map[id]bool // sessions that are left out
	arrows int         // in the graph
}

// addWaiter adds a session that waits, those that it waits for, and the arrows between.
func (s *selection) addWaiter(w id) {
	// Add the blockers first: an arrow needs both ends.
	to := s.addBlockers(blockersOf(s.waitsFor[w], s.waiting[w], s.holders))
	crowded := len(to) > 0 && !slices.ContainsFunc(to, func(n *node) bool { return n.waiters < maxLine })
	if crowded && !s.blocks(w) && s.nodes[w] == nil {
		s.left[w] = true
		s.graph.Arrows += len(to)
		return
	}
	from := s.add(w)
	for _, b := range to {
		if from == nil || s.arrows == maxEdges {
			s.graph.Arrows++
			continue
		}
		from.waits = append(from.waits, b)
		b.waiters++
		s.arrows++
	}
}

// addBlockers adds the first of the sessions that one session waits for, and returns their nodes.
func (s *selection) addBlockers(blockers []id) (to []*node) {
	for len(blockers) > maxLine {
		last := blockers[len(blockers)-1]
		if s.nodes[last] == nil {
			s.left[last] = true
		}
		s.graph.Arrows++
		blockers = blockers[:len(blockers)-1]
	}
	for _, b := range blockers {
		if n := s.add(b); n != nil {
			to = append(to, n)
		}
	}
	return to
}

// add returns the node of a session, or nil if there is no room for it.
func (s *selection) add(i id) *node {
	if n := s.nodes[i]; n != nil {
		return n
	}
	if len(s.graph.Nodes) == maxNodes {
		s.left[i] = true
		return nil
	}
	n := &node{id: i, PID: i.pid, Name: fmt.Sprintf("pid %d", i.pid), holds: len(s.held[i]) > 0, age: int64(s.waiting[i].Age)}
	if i.pid == 0 {
		n.Name = "prepared"
	}
	s.nodes[i] = n
	delete(s.left, i)
	s.graph.Nodes = append(s.graph.Nodes, n)
	return n
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
