package harness

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// Lateness has a session of its own keep the timetable by which a wait finds a deadlock, over
// and over, while the test runs. It sleeps on the server where a wait waits for a lock. stop
// returns how late the session was at the end of the timetable, in the median.
func (p *Pool) Lateness(t testing.TB) (stop func() time.Duration) {
	t.Helper()
	look := []string{lockfn.NoTimeout + lockfn.Blocks, lockfn.NoTimeout + lockfn.Deadlock}
	timetable := []struct {
		sleep time.Duration
		look  bool
	}{
		{sleep: 400 * time.Millisecond},
		{sleep: 400 * time.Millisecond},
		{200 * time.Millisecond, true},
		{sleep: 400 * time.Millisecond},
		{100 * time.Millisecond, true},
	}
	var planned time.Duration
	for _, row := range timetable {
		planned += row.sleep
	}

	conn := p.NewConn(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan Spread, 1)
	go func() {
		var late Spread
		defer func() { done <- late }()
		for {
			start := time.Now()
			for _, row := range timetable {
				if ctx.Err() != nil {
					return
				}
				_, err := conn.ExecContext(t.Context(), fmt.Sprintf("SELECT pg_catalog.pg_sleep(%f)", row.sleep.Seconds()))
				for i := 0; i < len(look) && row.look && err == nil; i++ {
					_, err = conn.ExecContext(t.Context(), look[i])
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
			late = append(late, time.Since(start)-planned)
		}
	}()
	return func() time.Duration {
		cancel()
		late := <-done
		t.Logf("a session with the timetable of a wait is late by: %v", late)
		return late.Median()
	}
}
