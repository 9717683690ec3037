package inspect

import (
	"fmt"
	"slices"
)

// circles finds sessions that wait for each other. Of all those that wait, in the end, for each
// other it tells one circle: another may be there when that one is gone.
func circles(locks []Lock) (suspects []Suspect) {
	waitsFor := map[int][]int{}
	var pids []int
	for _, granted := range []bool{true, false} { // who holds something comes first
		for _, l := range locks {
			if _, known := waitsFor[l.PID]; l.Granted == granted && !known && l.PID != 0 && len(l.WaitsFor) > 0 {
				waitsFor[l.PID] = l.WaitsFor
				pids = append(pids, l.PID)
			}
		}
	}
	for _, circle := range circlesOf(pids, func(pid int) []int { return waitsFor[pid] }) {
		suspects = append(suspects, ofCircle(circle, locks))
	}
	return suspects
}

func ofCircle(circle []int, locks []Lock) Suspect {
	s := Suspect{Kind: Circle}
	var last Lock
	for _, l := range locks {
		if !slices.Contains(circle, l.PID) {
			continue
		}
		if l.Granted {
			s.Locks = append(s.Locks, l)
		} else if last.PID == 0 || l.Since.After(last.Since) {
			last = l
		}
	}
	s.Why = fmt.Sprintf("The sessions of %s wait for each other. The server ends such a deadlock after deadlock_timeout, 1 s by default, and waits of this library end it within three; if you see it again, nobody does.", pids(circle))
	s.Do = "Look again. If it is still there, cancel one of the waits: the one that began last, say."
	if last.PID != 0 {
		s.PID = last.PID
		s.SQL = onSession("pg_cancel_backend", last)
	}
	return s
}

// circlesOf finds a shortest circle in each group of sessions that all wait, in the end, for each
// other: the one through the session that comes first in pids.
//
// A queue has an arrow from each session to all before it, so there may be hundreds of thousands.
// Each is looked at a few times: the groups are found first, by one walk (Tarjan's), and a circle
// is then looked for once in each.
func circlesOf(pids []int, waitsFor func(pid int) []int) (circles [][]int) {
	group := groups(pids, waitsFor)
	size := map[int]int{}
	for _, g := range group {
		size[g]++
	}
	told := map[int]bool{}
	for _, pid := range pids {
		g := group[pid]
		if told[g] {
			continue
		}
		if size[g] == 1 && !slices.Contains(waitsFor(pid), pid) {
			continue
		}
		told[g] = true
		circles = append(circles, circle(pid, waitsFor, func(q int) bool { return group[q] == g }))
	}
	return circles
}

// groups gives the sessions that all wait, in the end, for each other one number, from 1. A
// prepared transaction, 0, waits for nobody and is in no group.
func groups(pids []int, waitsFor func(pid int) []int) map[int]int {
	var (
		group   = map[int]int{}
		number  = map[int]int{} // in the order of the walk, from 1
		low     = map[int]int{} // the least number on the path that is reached from there
		path    []int           // those without a group so far
		visit   func(p int)
		counter int
	)
	visit = func(p int) {
		number[p] = len(number) + 1
		low[p] = number[p]
		path = append(path, p)
		for _, q := range waitsFor(p) {
			switch {
			case q == 0:
			case number[q] == 0:
				visit(q)
				low[p] = min(low[p], low[q])
			case group[q] == 0:
				low[p] = min(low[p], number[q])
			}
		}
		if low[p] < number[p] {
			return
		}
		counter++
		for group[p] == 0 {
			last := len(path) - 1
			group[path[last]] = counter
			path = path[:last]
		}
	}
	for _, p := range pids {
		if number[p] == 0 {
			visit(p)
		}
	}
	return group
}

// circle returns the sessions of a shortest circle through pid among those that are in, in the
// order in which they wait, or nil.
func circle(pid int, waitsFor func(pid int) []int, in func(pid int) bool) []int {
	from := map[int]int{}
	queue := []int{pid}
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		for _, q := range waitsFor(p) {
			if q == pid {
				path := []int{p}
				for p != pid {
					p = from[p]
					path = append(path, p)
				}
				slices.Reverse(path)
				return path
			}
			if _, seen := from[q]; !seen && in(q) {
				from[q] = p
				queue = append(queue, q)
			}
		}
	}
	return nil
}
