package locker_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// far is eachDriver with a server that is far away, so that one call comes while another
// is under way.
func far(t *testing.T, test func(t *testing.T, p *harness.Pool)) {
	t.Parallel()
	harness.AtOnce(t, func(all *harness.Together) {
		for _, d := range harness.Drivers[:2] {
			all.Start(d.Name, func(t *testing.T) {
				p, link := d.Proxied(t, pgtest.URL(t))
				link.Delay(20 * time.Millisecond)
				test(t, p)
			})
		}
	})
}

func TestUnlockDuringADowngrade(t *testing.T) {
	far(t, func(t *testing.T, p *harness.Pool) {
		l := p.Locker(t)
		for range 5 {
			lock, _ := harness.LockerTry(t, l, harness.Key)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			lock.Downgrade(ctx) // it goes on
			cancel()
			if err := lock.Unlock(); err != nil {
				t.Error(err)
			}
			if held, _ := p.Locks(t); held != 0 {
				t.Errorf("%d locks after Unlock", held)
			}
		}
	})
}

func TestDowngradesAtOnce(t *testing.T) {
	far(t, func(t *testing.T, p *harness.Pool) {
		l := p.Locker(t)
		lock, _ := harness.LockerTry(t, l, harness.Key)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := lock.Downgrade(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
		if held, _ := p.Locks(t); held != 0 {
			t.Errorf("%d locks after Unlock", held)
		}
	})
}

// The last reader leaves while another, who is about to join it, waits for a token.
func TestReadersJoinAndLeaveWithTokens(t *testing.T) {
	pgtest.Slow(t)
	far(t, func(t *testing.T, p *harness.Pool) {
		l := p.Locker(t, locker.WithFencing())
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				for range 10 {
					lock, err := l.Lock(context.Background(), harness.Key, advisory.Shared)
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Duration(i) * 7 * time.Millisecond)
					if err := lock.Unlock(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		p.NoLocks(t)
	})
}
