package locker_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// Twenty Lockers wait for one slot that is handed over quickly, and their callers leave at any
// moment. So cancels aim at waits that are granted just now, and none is an error in the log.
func TestCancelsOfWaitsThatAreGrantedAreSilent(t *testing.T) {
	pgtest.Slow(t)
	const waits = 300
	t.Parallel()
	server := pgtest.NewServer(t, "max_connections=200")
	harness.SeesComplaints(t, server)
	harness.AtOnce(t, func(all *harness.Together) {
		for _, d := range harness.Drivers[:2] {
			all.Start(d.Name, func(t *testing.T) {
				p := d.Open(t, server.Database(t))
				var granted atomic.Int64
				var wg sync.WaitGroup
				for range 20 {
					l := p.Locker(t, locker.WithMaxConns(2))
					for range 2 {
						wg.Go(func() {
							for range waits {
								lock, err := l.Lock(context.Background(), harness.Key, advisory.MaxWait(rand.N(15*time.Millisecond)))
								if err == nil {
									granted.Add(1)
									time.Sleep(300 * time.Microsecond)
									err = lock.Unlock()
								} else if harness.IsNotAcquired(err) {
									err = nil
								}
								if err != nil {
									t.Error(err)
								}
							}
						})
					}
				}
				wg.Wait()
				t.Logf("%d waits, %d granted", 20*2*waits, granted.Load())
				harness.Silent(t, server, p)
			})
		}
	})
}
