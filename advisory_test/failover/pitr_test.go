//go:build unix

package failover_test

import (
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// A server is recovered to a point before its newest tokens. Its transaction ids go back, and its
// tokens grow all the more, as long as the archive has the history of every timeline. Without it the
// server begins a timeline that existed: pools that know better refuse it, the others need an epoch.
func TestTokensOverARecoveryToAPointInTime(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t, "archive_mode=on", "archive_command=mkdir -p ../archive && cp %p ../archive/%f")
	server.BackUp(t)
	clients := newTokenClients(t, server.URL())
	var kept uint64
	for _, c := range clients {
		_, kept = draw(t, c.l, 20)
	}
	ask[string](t, server, "SELECT pg_create_restore_point('here')::text")
	greatest := kept
	for _, c := range clients {
		_, greatest = draw(t, c.l, 100)
	}
	lost := xid(greatest)
	firsts := map[uint64]uint64{} // tokens by timeline

	restore := func(settings ...string) {
		t.Helper()
		stopped(t, server)
		server.Restore(t, settings...)
		recovered(t, server)
	}
	for timeline := uint64(2); timeline <= 3; timeline++ { // the same point twice
		restore("restore_command=cp ../archive/%f %p", "recovery_target_name=here", "recovery_target_action=promote")
		for _, c := range clients {
			first, last := draw(t, c.l, 20)
			is(t, first, timeline, "greater than", greatest)
			if xid(first) <= xid(kept) || xid(last) >= lost {
				t.Errorf("%s: recovered to another point: ids %d to %d, %d is kept, %d was lost", c.name, xid(first), xid(last), xid(kept), lost)
			}
			greatest = last
			if firsts[timeline] == 0 {
				firsts[timeline] = first
			}
		}
	}

	t.Run("without the archive", func(t *testing.T) {
		restore("restore_command=false", "recovery_target=immediate", "recovery_target_action=promote")
		beginsAgain(t, server, clients, 2, firsts[2], greatest)
	})
	t.Run("a snapshot", func(t *testing.T) {
		restore()
		beginsAgain(t, server, clients, 1, kept, greatest)
	})
}

// beginsAgain checks a server on a timeline that existed, and on which the token given was drawn
// before. The epoch is the greatest timeline that existed; greatest is its last token.
func beginsAgain(t *testing.T, server *pgtest.Server, clients []tokenClient, timeline, given, greatest uint64) {
	t.Helper()
	for _, c := range clients {
		refusesAsStale(t, c.l)
	}
	for _, d := range harness.Drivers[:2] {
		fresh := d.Open(t, server.URL()).DB
		is(t, drawWith(t, fresh), timeline, "no greater than", given)
		is(t, drawWith(t, fresh, locker.WithTokenEpoch(3)), timeline+3, "greater than", greatest)
	}
}
