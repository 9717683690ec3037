package harness

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Together runs subtests at once, more than -parallel would: they wait most of the time.
type Together struct {
	*testing.T
	Running sync.WaitGroup
}

func (s *Together) Start(name string, test func(t *testing.T)) {
	s.Running.Go(func() { s.Run(name, test) })
}

// AtOnce returns when all the subtests that add runs have ended.
func AtOnce(t *testing.T, add func(s *Together)) {
	s := &Together{T: t}
	defer s.Running.Wait()
	add(s)
}

// CasesAtOnce runs a test for each case and driver, all at once.
func CasesAtOnce[C fmt.Stringer](t *testing.T, cases []C, test func(t *testing.T, d Driver, c C)) {
	AtOnce(t, func(all *Together) {
		for _, d := range Drivers[:2] {
			for _, c := range cases {
				all.Start(d.Name+"/"+c.String(), func(t *testing.T) { test(t, d, c) })
			}
		}
	})
}

// A Lag is by how much this machine was late, at the worst: what a test of times has to
// make allowance for.
type Lag struct{ Worst atomic.Int64 }

// WatchLag watches until the end of the test.
func WatchLag(t testing.TB) *Lag {
	l := &Lag{}
	const nap = 10 * time.Millisecond
	go func() {
		for last := time.Now(); t.Context().Err() == nil; {
			time.Sleep(nap)
			now := time.Now()
			l.Worst.Store(max(l.Worst.Load(), int64(now.Sub(last)-nap)))
			last = now
		}
	}()
	return l
}

func (l *Lag) Get() time.Duration { return time.Duration(l.Worst.Load()) }

// InTime fails the test if a call took longer than most, with an allowance for ten round trips
// each of which this machine was late for.
func (l *Lag) InTime(t testing.TB, took, most time.Duration) {
	t.Helper()
	if late := l.Get(); took > most+10*late {
		t.Errorf("took %v, and was to take %v at the most, on a machine that was late by up to %v", took, most, late)
	}
}

// Number is how many of something a test does: few by default, for a quick suite, or
// what a variable of the environment says.
func Number(t testing.TB, variable string, few int) int {
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
