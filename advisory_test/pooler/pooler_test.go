package pooler_test

import (
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

func TestLockerRefusesAPoolerInTransactionMode(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	serverURL := pgtest.URL(t)
	for _, how := range harness.UnsafePoolings() {
		t.Run(how.String(), func(t *testing.T) {
			url := how.Start(t, serverURL)
			for _, d := range harness.Drivers[:2] {
				rounds, refused := harness.PoolerRounds(t), 0
				start := time.Now()
				for range rounds {
					p := d.Open(t, url)
					l := locker.New(p.DB)
					lock, ok, err := l.TryLock(t.Context(), harness.Key)
					if harness.IsPooler(t, d.Name, err) {
						refused++
					} else if ok {
						lock.Unlock()
					}
					l.Close()
					p.Close()
				}
				t.Logf("%s: refused %d of %d, %v each", d.Name, refused, rounds, time.Since(start)/time.Duration(rounds))
			}
			p := harness.Drivers[0].Open(t, serverURL)
			held, _ := p.Locks(t)
			if held != 0 {
				t.Errorf("%d locks are left on the pooler's sessions", held)
			}
		})
	}
}
