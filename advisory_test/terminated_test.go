package advisory_test

import (
	"context"
	"testing"
)

// A waiter whose session is terminated is told, and the pool goes on without it.
func TestTerminatedWaiterIsTold(t *testing.T) {
	eachDriverAtOnce(t, func(t *testing.T, p *pool) {
		holder := p.conn(t)
		tryLock(t, holder, key)
		inUse := p.Stats().InUse
		for _, kind := range kinds {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			done := make(chan error, 1)
			go func() {
				done <- kind.wait(ctx, p, key, func() { t.Errorf("%s: got the lock", kind.name) })
			}()
			eventually(t, "a waiter is terminated", func() bool {
				return ask[int](t, p, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
					WHERE datname = current_database() AND query LIKE '/*pgadvisory waits%'`) > 0
			})
			if err := <-done; err == nil || ctx.Err() != nil {
				t.Errorf("%s: %v", kind.name, err)
			}
			if n := p.Stats().InUse; n != inUse {
				t.Errorf("%s: %d connections are in use, not %d", kind.name, n, inUse)
			}
			for range 5 { // whatever connection the pool hands out
				doSQL(t, p, "SELECT 1")
			}
			eventually(t, "the terminated session is gone", func() bool { return p.waiters(t) == 0 })
			if held, waiting := p.locks(t); held != 1 || waiting != 0 {
				t.Errorf("%s: %d locks are held and %d waited for", kind.name, held, waiting)
			}
		}
		waiters := p.waiting(context.Background(), t, 1, key)
		unlock(t, holder, key)
		if err := waiters.Wait(); err != nil {
			t.Error(err)
		}
		p.noLocks(t)
	})
}
