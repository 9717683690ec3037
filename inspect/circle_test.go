package inspect

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestCircles(t *testing.T) {
	for _, c := range []struct {
		waitsFor map[int][]int
		want     string
	}{
		{map[int][]int{1: {2}, 2: {1}}, "[[1 2]]"},
		{map[int][]int{1: {2}, 2: {3}, 3: {1}}, "[[1 2 3]]"},
		{map[int][]int{1: {2}, 2: {3}, 3: {1, 2}}, "[[1 2 3]]"},
		{map[int][]int{1: {2, 3}, 2: {3}, 3: {1, 2}}, "[[1 3]]"}, // the shortest
		{map[int][]int{1: {2}, 2: {3}, 3: {2}}, "[[2 3]]"},       // the first only waits for a circle
		{map[int][]int{1: {2}, 2: {1, 3}, 3: {4}, 4: {3}}, "[[1 2] [3 4]]"},
		{map[int][]int{1: {2, 3}, 2: {4}, 3: {4}}, "[]"},
		{map[int][]int{1: {0}, 2: {0}}, "[]"}, // prepared transactions wait for nobody
		{map[int][]int{1: {1}}, "[[1]]"},
	} {
		var pids []int
		for pid := range 5 {
			if c.waitsFor[pid] != nil {
				pids = append(pids, pid)
			}
		}
		if got := fmt.Sprint(circlesOf(pids, func(pid int) []int { return c.waitsFor[pid] })); got != c.want {
			t.Errorf("%v: %s, not %s", c.waitsFor, got, c.want)
		}
	}
}

// aQueue is a key with a thousand who wait for it, each for all before it.
func aQueue() []Lock {
	locks := []Lock{holds(1, 7)}
	before := []int{1}
	for pid := 2; pid <= 1001; pid++ {
		locks = append(locks, waits(pid, 7, time.Minute, before[:len(before):len(before)]...))
		before = append(before, pid)
	}
	return locks
}

// A thousand who wait for one key are half a million arrows: each is looked at a few times.
func TestCirclesInALongQueue(t *testing.T) {
	for name, want := range map[string]int{"a queue": 0, "a queue with a circle": 1} {
		t.Run(name, func(t *testing.T) {
			locks := aQueue()
			if want == 1 { // the holder waits for what the last in its queue holds
				locks[0].WaitsFor = []int{1001}
				locks = append(locks, holds(1001, 8), waits(1, 8, time.Minute, 1001))
				locks[len(locks)-2].WaitsFor = locks[1000].WaitsFor
			}
			waitsFor := map[int][]int{}
			var pids []int
			arrows := 0
			for _, l := range locks {
				if waitsFor[l.PID] == nil && len(l.WaitsFor) > 0 {
					waitsFor[l.PID] = l.WaitsFor
					pids = append(pids, l.PID)
					arrows += len(l.WaitsFor)
				}
			}
			looked := 0
			found := circlesOf(pids, func(pid int) []int {
				looked += len(waitsFor[pid])
				return waitsFor[pid]
			})
			if len(found) != want {
				t.Errorf("%d circles, not %d", len(found), want)
			}
			if arrows < 500_000 || looked > 3*arrows {
				t.Errorf("%d arrows were looked at %d times", arrows, looked)
			}
			reported := 0
			for _, s := range judge(locks, place{}, time.Second) {
				if s.Kind == Circle {
					reported++
					if !strings.Contains(s.Why, "pids 1, 1001 wait") {
						t.Error(s.Why)
					}
				}
			}
			if reported != want {
				t.Errorf("%d circles are reported, not %d", reported, want)
			}
		})
	}
}

// SQL that would cancel a wait says in which state the session was seen. A role that may
// not see that gets none.
func TestCircleThatIsNotSeenWhole(t *testing.T) {
	seen := []Lock{holds(1, 7), holds(2, 8), waits(1, 8, time.Second, 2), waits(2, 7, time.Second, 1)}
	for i := range seen {
		seen[i].WaitsFor = []int{3 - seen[i].PID}
	}
	list := judge(seen, place{}, time.Minute)
	if len(list) != 1 || list[0].Kind != Circle || list[0].SQL != "" {
		t.Errorf("%v", list)
	}
	for i := range seen {
		seen[i].StateSince = time.Unix(1e9, 0)
	}
	list = judge(seen, place{}, time.Minute)
	if len(list) != 1 || !strings.Contains(list[0].SQL, "state_change = '2001-09-09 01:46:40+00'") {
		t.Errorf("%v", list)
	}
}
