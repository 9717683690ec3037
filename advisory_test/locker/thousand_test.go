package locker_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
)

// A thousand goroutines in each of two processes, a pool of five connections for each process
// and its work: on one key, and on a thousand keys that the other process has, too.
func TestThousandGoroutines(t *testing.T) {
	const many, keys = 1000, 1000
	for name, key := range map[string]func(g int) advisory.Key{
		"one key":         func(int) advisory.Key { return advisory.Int64(1) },
		"a thousand keys": func(g int) advisory.Key { return advisory.Int64(int64(g % keys)) },
	} {
		t.Run(name, func(t *testing.T) {
			harness.Fair(t, func(t *testing.T, p *harness.Pool) {
				harness.DoSQL(t, p, "CREATE TABLE work (n int)")
				var wg sync.WaitGroup
				pools := []*harness.Pool{p, p.By.Open(t, p.Url)}
				for _, mine := range pools {
					mine.SetMaxOpenConns(5)
					l := mine.Locker(t)
					for g := range many {
						wg.Go(func() {
							// As many as the pool has room for do their work at a time, the others wait for
							// it, under their locks: they must not be in each other's way.
							err := l.Do(context.Background(), key(g), func(ctx context.Context) error {
								_, err := mine.ExecContext(ctx, "INSERT INTO work VALUES (1)")
								return err
							})
							if err != nil {
								t.Error(err)
							}
						})
					}
				}
				most := make(chan int)
				done := make(chan struct{})
				go func() {
					n := 0
					for {
						select {
						case <-done:
							most <- n
							return
						case <-time.After(5 * time.Millisecond):
							for _, p := range pools {
								n = max(n, p.Stats().OpenConnections)
							}
						}
					}
				}()
				wg.Wait()
				close(done)
				t.Logf("two processes of %d goroutines, done with %d connections each at most", many, <-most)
				if n := harness.Ask[int](t, p, "SELECT count(*) FROM work"); n != 2*many {
					t.Errorf("%d of %d were done", n, 2*many)
				}
				p.NoLocks(t)
			})
		})
	}
}
