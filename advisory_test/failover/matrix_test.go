//go:build unix

package failover_test

import (
	"testing"

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
	fault    func(c *cast)

	// apart: whoever held a key has stopped before the next one has it. Else this holds while the
	// server lives: when it ends its locks are free at once, and a holder learns of it within a
	// heartbeat.
	apart bool
}

// What else happens to servers has tests of its own: a primary that is cut off and lives on in
// TestHoldersAcrossAPromotionWithStandby, beats and standbys in TestProofOfTheStandby, and a host that
// goes silent in TestSixIdleConnectionsToASilentHost.
var matrix = []row{
	{name: "killed, promoted at once", standbys: 1, fault: killed},
	{name: "paused, promoted, resumed", standbys: 2, fault: paused, apart: true, options: []locker.Option{locker.WithStandby()}},
	{name: "back on the old timeline, rewound, promoted", standbys: 1, fault: rewound, apart: true, settings: harness.RewindSettings},
	{name: "switched over and back", standbys: 1, fault: switchedOver, apart: true},
	{name: "lagging, promoted", standbys: 1, fault: lagging, apart: true},
}

// In each row, whoever lost a lock gets ErrLost within D, nobody holds a key beside another, all of
// the cast go on at the new primary by themselves, and tokens grow. PGADVISORY_PROMOTIONS says how many
// rows are run, five at a time.
func TestFaultsOfAFailover(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	n := harness.Number(t, "PGADVISORY_PROMOTIONS", len(matrix))
	for from := 0; from < n; from += len(matrix) {
		harness.AtOnce(t, func(all *harness.Together) {
			for i := from; i < min(from+len(matrix), n); i++ {
				r := matrix[i%len(matrix)]
				all.Start(r.name, func(t *testing.T) {
					c := newCast(t, harness.NewReplication(t, r.standbys, r.settings...), r.options...)
					r.fault(c)
					c.judge(r.apart)
				})
			}
		})
	}
}
