//go:build unix

package locker_test

import (
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// A role without rights gets tokens that begin with the timeline, from PostgreSQL 13 on. Before that
// the error says so.
func TestTokensOnEachMajor(t *testing.T) {
	server := pgtest.NewServer(t)
	url := harness.Unprivileged(t, server)
	for _, d := range harness.Drivers[:2] {
		t.Run(d.Name, func(t *testing.T) {
			p := d.Open(t, url)
			l := p.Locker(t, locker.WithFencing(), locker.WithTokenEpoch(5))
			lock, _, err := l.TryLock(t.Context(), harness.Key)
			if server.Version() < 130000 {
				for call, err := range map[string]error{"TryLock": err, "Ping": l.Ping(t.Context())} {
					if err == nil || !strings.Contains(err.Error(), "WithFencing needs PostgreSQL 13 or later, and version() is PostgreSQL 12") {
						t.Errorf("%s: %v", call, err)
					}
				}
				p.NoLocks(t)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if lock.Token()>>48 != 6 {
				t.Errorf("token %#x on timeline 1, with epoch 5", lock.Token())
			}
			if err := lock.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
}
