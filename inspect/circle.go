package inspect

import (
	"fmt"
	"slices"
)

// circles returns sessions that wait for each other. In each group of sessions that wait for each
// other, directly or through others, it returns one circle. Another may be left when that circle is
// broken.
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
		suspects = append(suspects, circleSuspect(circle, locks))
	}
	return suspects
}

// circleSuspect returns the suspect of one circle.
func circleSuspect(circle []int, locks []Lock) Suspect {
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
	s.Why = fmt.Sprintf("The sessions of %s wait for each other. The server ends such a deadlock after deadlock_timeout, 1 s by default, and waits of this library end it within three seconds. If you see it again, it does not end by itself.", pids(circle))
	s.Do = "Look again. If it is still there, cancel one of the waits, for example the one that began last."
	if last.PID != 0 {
		s.PID = last.PID
		s.SQL = onSession("pg_cancel_backend", last)
	}
	return s
}

// circlesOf returns a shortest circle in each group of sessions that wait for each other, directly or
// through others: the circle through the session that comes first in pids.
//
// In a queue each session waits for all before it, so there may be hundreds of thousands of edges.
// Each is visited a few times only. One walk (Tarjan's) finds the groups, and then one search in
// each group finds a circle.
func circlesOf(pids []int, waitsFor func(pid int) []int) (circles [][]int) {
	group := groups(pids, waitsFor)
	size := map[int]int{}
	for _, g := range group {
		size[g]++
	}
	done := map[int]bool{}
	for _, pid := range pids {
		g := group[pid]
		if done[g] {
			continue
		}
		if size[g] == 1 && !slices.Contains(waitsFor(pid), pid) {
			continue
		}
		done[g] = true
		circles = append(circles, circle(pid, waitsFor, func(q int) bool { return group[q] == g }))
	}
	return circles
}

// groups numbers the groups of sessions that wait for each other, directly or through others, from
// 1. A prepared transaction, 0, waits for no session and is in no group.
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

// circle returns a shortest circle through pid, of sessions for which inGroup returns true, in the
// order in which they wait. It returns nil if there is none.
func circle(pid int, waitsFor func(pid int) []int, inGroup func(pid int) bool) []int {
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
			if _, seen := from[q]; !seen && inGroup(q) {
				from[q] = p
				queue = append(queue, q)
			}
		}
	}
	return nil
}
