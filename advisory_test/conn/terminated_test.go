package conn_test

import (
	"context"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
)

// A waiter whose session is terminated is told, and the pool goes on without it.
func TestTerminatedWaiterIsTold(t *testing.T) {
	harness.EachDriverAtOnce(t, func(t *testing.T, p *harness.Pool) {
		holder := p.NewConn(t)
		harness.TryLock(t, holder, harness.Key)
		inUse := p.Stats().InUse
		for _, kind := range kinds {
			ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
			defer cancel()
			done := make(chan error, 1)
			go func() {
				done <- kind.wait(ctx, p, harness.Key, func() { t.Errorf("%s: got the lock", kind.name) })
			}()
			harness.Eventually(t, "a waiter is terminated", func() bool {
				return harness.Ask[int](t, p, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
					WHERE datname = current_database() AND query LIKE '/*pgadvisory waits%'`) > 0
			})
			if err := <-done; err == nil || ctx.Err() != nil {
				t.Errorf("%s: %v", kind.name, err)
			}
			if n := p.Stats().InUse; n != inUse {
				t.Errorf("%s: %d connections are in use, not %d", kind.name, n, inUse)
			}
			for range 5 { // whatever connection the pool hands out
				harness.DoSQL(t, p, "SELECT 1")
			}
			harness.Eventually(t, "the terminated session is gone", func() bool { return doWaiters(p, t) == 0 })
			if held, waiting := p.Locks(t); held != 1 || waiting != 0 {
				t.Errorf("%s: %d locks are held and %d waited for", kind.name, held, waiting)
			}
		}
		waiters := waiting(p, context.Background(), t, 1, harness.Key)
		harness.Unlock(t, holder, harness.Key)
		if err := waiters.Wait(); err != nil {
			t.Error(err)
		}
		p.NoLocks(t)
	})
}
