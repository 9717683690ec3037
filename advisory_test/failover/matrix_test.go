//go:build unix

package failover_test

import (
	"slices"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// A row of the matrix is a fault of the servers while a cast works: see cast.
type row struct {
	name     string
	standbys int
	settings []string
	options  []locker.Option
	failover time.Duration // of the Lockers; 5 s if it is zero
	fault    func(c *cast)

	// apart: whoever held a key has stopped before the next one has it. Else this holds while the
	// server lives: when it ends its locks are free at once, and a holder learns of it within a
	// heartbeat.
	apart bool
	// twice: two servers give out the same key, as docs/failover.md says. On each of them nobody holds
	// it beside another.
	twice bool
}

// proven are the options of rows in which locks need a standby.
var proven = []locker.Option{locker.WithStandby()}

// With patient, D is long enough for the slowest machine to end the fault in time. With slow, a beat that
// counts by mistake makes a holder go on for seconds.
const (
	patient = time.Minute
	slow    = 10 * time.Second
)

// A primary that is cut off and lives on after the promotion has a test of its own, with a control:
// TestHoldersAcrossAPromotionWithStandby.
var matrix = []row{
	{name: "killed, promoted at once", standbys: 1, fault: killed},
	{name: "paused, promoted, resumed", standbys: 2, fault: paused, apart: true, options: proven},
	{name: "back on the old timeline, rewound, promoted", standbys: 1, fault: rewound, apart: true, settings: harness.RewindSettings},
	{name: "switched over and back", standbys: 1, fault: switchedOver, apart: true},
	{name: "lagging, promoted", standbys: 1, fault: lagging, apart: true},
	{name: "no standby left", standbys: 1, fault: noStandby, apart: true, options: proven},
	{name: "cut and healed in time", standbys: 1, fault: healed, apart: true, options: proven, failover: patient},
	{name: "clients killed while their beats wait", standbys: 1, fault: clientsKilled, apart: true, options: proven, failover: patient},
	{name: "beats cancelled", standbys: 1, fault: beatsCancelled, apart: true, options: proven, failover: slow},
	{name: "beats terminated", standbys: 1, fault: beatsTerminated, apart: true, options: proven, failover: slow},
	{name: "beats answered by a reload", standbys: 1, fault: beatsReloaded, apart: true, options: proven, failover: slow},
	{name: "another standby confirms, ANY 1", standbys: 2, fault: anotherConfirms, twice: true, options: proven},
	{name: "silent, with six idle connections", standbys: 1, fault: silent, apart: true},
}

// In each row, whoever lost a lock gets ErrLost within D, nobody holds a key beside another, all of
// the cast go on by themselves, at the new primary if there is one, and tokens grow.
// PGADVISORY_PROMOTIONS says how often each row is run, five rows at a time.
func TestFaultsOfAFailover(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	n := harness.Number(t, "PGADVISORY_PROMOTIONS", 1)
	for some := range slices.Chunk(slices.Repeat(matrix, n), 5) {
		harness.AtOnce(t, func(all *harness.Together) {
			for _, r := range some {
				all.Start(r.name, func(t *testing.T) {
					c := newCast(t, r)
					r.fault(c)
					c.judge(r)
				})
			}
		})
	}
}
