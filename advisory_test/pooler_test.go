package advisory_test

import (
	"errors"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// isPooler fails the test unless err says that there is a pooler in between.
func isPooler(t testing.TB, what string, err error) bool {
	t.Helper()
	var unsafe *advisory.UnsafeServerError
	if !errors.Is(err, advisory.ErrUnsafeServer) || !errors.As(err, &unsafe) || unsafe.Reason != advisory.Pooler {
		t.Errorf("%s: %v", what, err)
		return false
	}
	return true
}

func TestLockerRefusesAPoolerInTransactionMode(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	serverURL := pgtest.URL(t)
	for _, how := range unsafePoolings() {
		t.Run(how.String(), func(t *testing.T) {
			url := how.start(t, serverURL)
			for _, d := range drivers[:2] {
				rounds, refused := poolerRounds(t), 0
				start := time.Now()
				for range rounds {
					p := d.open(t, url)
					l := locker.New(p.DB)
					lock, ok, err := l.TryLock(t.Context(), key)
					if isPooler(t, d.name, err) {
						refused++
					} else if ok {
						lock.Unlock()
					}
					l.Close()
					p.Close()
				}
				t.Logf("%s: refused %d of %d, %v each", d.name, refused, rounds, time.Since(start)/time.Duration(rounds))
			}
			p := drivers[0].open(t, serverURL)
			held, _ := p.locks(t)
			if held != 0 {
				t.Errorf("%d locks are left on the pooler's sessions", held)
			}
		})
	}
}
