package locker_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/proxy"
	"github.com/pgadvisory/pgadvisory/locker"
)

// A statement of a Locker's that is never answered ends with its session, and does not keep the
// connection.
func TestLostSessionEndsItsStatement(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.SharedServer(t)
	harness.CasesAtOnce(t, []proxy.Direction{proxy.Both, proxy.Up, proxy.Down}, func(t *testing.T, d harness.Driver, dir proxy.Direction) {
		p, link := d.Proxied(t, server.Database(t))
		l := p.Locker(t, locker.WithFailover(harness.QuickFailover))
		lock, ok := harness.LockerTry(t, l, harness.Key)
		if !ok {
			t.Fatal("not free")
		}
		if n := p.Stats().InUse; n == 0 {
			t.Error("no connection is in use")
		}
		dead := link.FreezeOn(func(m proxy.Message) bool {
			return m.Direction == proxy.Up && strings.Contains(m.Text, "pg_advisory_unlock(")
		}, dir)
		if err := lock.Unlock(); !errors.Is(err, advisory.ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
		<-dead
		harness.Eventually(t, "the session's connection is closed", func() bool { return p.Stats().InUse == 0 })
	})
}
