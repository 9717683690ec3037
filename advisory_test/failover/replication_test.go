//go:build unix

package failover_test

import (
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// rows returns how many rows of table t a server shows.
func rows(t *testing.T, n *harness.Node) int {
	t.Helper()
	return harness.Ask[int](t, n.Watch, "SELECT count(*) FROM t")
}

// What the tests of this folder rest on: replication that is cut and healed, delayed and waited for,
// promotions, and servers that come back as standbys.
func TestReplicationOfTheTestsOwn(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	r := harness.NewReplication(t, 2)
	a, b, c := r.Primary, r.Standbys[0], r.Standbys[1]
	a.Exec("CREATE TABLE t AS SELECT 1 AS n")
	b.CatchUp(a)
	c.CatchUp(a)
	if rows(t, b) != 1 || rows(t, c) != 1 {
		t.Fatal("a standby has not the row")
	}

	b.Cut()
	a.Exec("INSERT INTO t VALUES (2)")
	c.CatchUp(a)
	if n := rows(t, b); n != 1 {
		t.Errorf("the standby that is cut off has %d rows", n)
	}
	b.Heal()
	b.CatchUp(a)
	if n := rows(t, b); n != 2 {
		t.Errorf("the standby that is healed has %d rows", n)
	}

	c.Lag(time.Hour)
	a.Exec("INSERT INTO t VALUES (3)")
	b.CatchUp(a)
	if n := rows(t, c); n != 2 {
		t.Errorf("the standby that lags has %d rows", n)
	}
	c.Lag(0)
	c.CatchUp(a)
	if n := rows(t, c); n != 3 {
		t.Errorf("the standby that lags no more has %d rows", n)
	}

	a.Synchronous("b")
	b.Cut()
	committed := make(chan struct{})
	go func() {
		defer close(committed)
		if _, err := a.Watch.Exec("INSERT INTO t VALUES (4)"); err != nil {
			t.Error(err)
		}
	}()
	harness.Eventually(t, "the commit waits for the standby", func() bool {
		return harness.Ask[bool](t, a.Watch, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')")
	})
	b.Heal()
	<-committed
	a.Synchronous("")

	b.CatchUp(a)
	c.Cut()
	b.Promote()
	if old, now := a.Timeline(), b.Timeline(); old != 1 || now != 2 {
		t.Errorf("the timelines are %d and %d after the promotion", old, now)
	}
	b.Exec("INSERT INTO t VALUES (5)")
	a.Exec("DELETE FROM t") // the old primary lives
	c.Follow(b)
	if n := rows(t, c); n != 5 {
		t.Errorf("the standby of the new primary has %d rows", n)
	}
	if err := a.Stop("immediate"); err != nil {
		t.Fatal(err)
	}
	a.Rebuild(b)
	if n := rows(t, a); n != 5 {
		t.Errorf("the old primary has %d rows as a standby", n)
	}

	// A switchover, after which the primary can follow as it is.
	if err := b.Stop("fast"); err != nil {
		t.Fatal(err)
	}
	a.Promote()
	b.Follow(a)
	a.Exec("INSERT INTO t VALUES (6)")
	b.CatchUp(a)
	if n := rows(t, b); n != 6 || a.Timeline() != 3 {
		t.Errorf("after the switchover there are %d rows, on timeline %d", n, a.Timeline())
	}
}

// An old primary that went on after the promotion becomes a standby by pg_rewind, on its address.
func TestRewindOfTheTestsOwn(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	r := harness.NewReplication(t, 1, harness.RewindSettings...)
	a, b := r.Primary, r.Standbys[0]
	if !a.CanRewind() {
		t.Skip("there is no pg_rewind beside this server's programs")
	}
	a.Exec("CREATE TABLE t AS SELECT 1 AS n")
	b.CatchUp(a)
	b.Cut()
	b.Promote()
	a.Exec("INSERT INTO t VALUES (2)")
	b.Exec("INSERT INTO t VALUES (3), (4)")
	if err := a.Server.Rewind(pgtest.Upstream{Primary: b.Server, Addr: b.Addr(), Name: "a"}); err == nil {
		t.Error("a server that runs was rewound")
	}
	addr := a.Addr()
	b.Heal() // else the shutdown waits for it
	if err := a.Stop("fast"); err != nil {
		t.Fatal(err)
	}
	a.Rewind(b)
	if n := rows(t, a); n != 3 || a.Addr() != addr {
		t.Errorf("the old primary has %d rows, on %s", n, a.Addr())
	}
	if err := b.Crash(); err != nil {
		t.Fatal(err)
	}
	a.Promote()
	if n := a.Timeline(); n != 3 {
		t.Errorf("the timeline is %d", n)
	}
}
