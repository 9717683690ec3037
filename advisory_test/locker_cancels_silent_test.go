package advisory_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
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
	seesComplaints(t, server)
	atOnce(t, func(all *together) {
		for _, d := range drivers[:2] {
			all.run(d.name, func(t *testing.T) {
				p := d.open(t, server.Database(t))
				var granted atomic.Int64
				var wg sync.WaitGroup
				for range 20 {
					l := p.locker(t, locker.WithMaxConns(2))
					for range 2 {
						wg.Go(func() {
							for range waits {
								lock, err := l.Lock(context.Background(), key, advisory.MaxWait(rand.N(15*time.Millisecond)))
								if err == nil {
									granted.Add(1)
									time.Sleep(300 * time.Microsecond)
									err = lock.Unlock()
								} else if isNotAcquired(err) {
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
				silent(t, server, p)
			})
		}
	})
}
