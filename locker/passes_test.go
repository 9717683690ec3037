package locker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/locker"
)

func TestSemaphorePassesAfterALateAnswer(t *testing.T) {
	const slots = 200
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		sem := l.Semaphore(job, slots)
		passes := func() int {
			return len(f.statements(func(s *fakeStatement) bool { return isTryAny(s) }))
		}
		other := &fakeConn{f: f}
		f.set(func() {
			for _, k := range slotKeys(slots) {
				f.locks[k] = other
			}
		})
		if err := l.Ping(context.Background()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { _, err := sem.Acquire(ctx); done <- err }()
		time.Sleep(5 * time.Second)
		// The network is slow for five seconds.
		f.set(func() { f.delay = 3 * time.Second })
		time.Sleep(5 * time.Second)
		f.set(func() { f.delay = 0 })
		time.Sleep(4 * time.Second)
		before := passes()
		time.Sleep(10 * time.Second)
		if n := passes() - before; n < 50 {
			t.Errorf("%d statements in 10 s, after answers that took 3 s", n)
		}
		cancel()
		<-done
	})
}

func TestSemaphorePassesAfterASlowConnect(t *testing.T) {
	const slots = 200
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		other := &fakeConn{f: f}
		f.set(func() {
			for _, k := range slotKeys(slots) {
				f.locks[k] = other
			}
			f.delay = 400 * time.Millisecond
		})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { _, err := l.Semaphore(job, slots).Acquire(ctx); done <- err }()
		time.Sleep(1500 * time.Millisecond)
		f.set(func() { f.delay = time.Millisecond })
		time.Sleep(time.Minute)
		var last time.Time
		longest := time.Duration(0)
		for _, s := range f.statements(isTryAny) {
			if !last.IsZero() {
				longest = max(longest, s.at.Sub(last))
			}
			last = s.at
		}
		if longest > time.Second {
			t.Errorf("no pass for %v", longest)
		}
		cancel()
		<-done
	})
}

func isTryAny(s *fakeStatement) bool {
	return listedIn.MatchString(s.text) && strings.Contains(s.text, "SELECT t.i FROM")
}

func slotKeys(n int) (keys []string) {
	for i := range n {
		k, _ := advisory.Name("pgadvisory", "semaphore", job.String(), fmt.Sprint(i)).Int64()
		keys = append(keys, fmt.Sprint(k))
	}
	return keys
}
