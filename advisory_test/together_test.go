package advisory_test

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A together runs subtests at once, more than -parallel would: they wait most of the time.
type together struct {
	*testing.T
	running sync.WaitGroup
}

func (s *together) run(name string, test func(t *testing.T)) {
	s.running.Go(func() { s.Run(name, test) })
}

// atOnce returns when all the subtests that add runs have ended.
func atOnce(t *testing.T, add func(s *together)) {
	s := &together{T: t}
	defer s.running.Wait()
	add(s)
}

// casesAtOnce runs a test for each case and driver, all at once.
func casesAtOnce[C fmt.Stringer](t *testing.T, cases []C, test func(t *testing.T, d driver, c C)) {
	atOnce(t, func(all *together) {
		for _, d := range drivers[:2] {
			for _, c := range cases {
				all.run(d.name+"/"+c.String(), func(t *testing.T) { test(t, d, c) })
			}
		}
	})
}

// A lag is by how much this machine was late, at the worst: what a test of times has to
// make allowance for.
type lag struct{ worst atomic.Int64 }

// watchLag watches until the end of the test.
func watchLag(t testing.TB) *lag {
	l := &lag{}
	const nap = 10 * time.Millisecond
	go func() {
		for last := time.Now(); t.Context().Err() == nil; {
			time.Sleep(nap)
			now := time.Now()
			l.worst.Store(max(l.worst.Load(), int64(now.Sub(last)-nap)))
			last = now
		}
	}()
	return l
}

func (l *lag) get() time.Duration { return time.Duration(l.worst.Load()) }

// inTime fails the test if a call took longer than most, with an allowance for ten round trips
// each of which this machine was late for.
func (l *lag) inTime(t testing.TB, took, most time.Duration) {
	t.Helper()
	if late := l.get(); took > most+10*late {
		t.Errorf("took %v, and was to take %v at the most, on a machine that was late by up to %v", took, most, late)
	}
}

// number is how many of something a test does: few by default, for a quick suite, or
// what a variable of the environment says.
func number(t testing.TB, variable string, few int) int {
	t.Helper()
	v := os.Getenv(variable)
	if v == "" {
		return few
	}
	n, err := strconv.Atoi(v)
	if err != nil || n <= 0 {
		t.Fatalf("%s=%q is not a number of runs", variable, v)
	}
	return n
}
