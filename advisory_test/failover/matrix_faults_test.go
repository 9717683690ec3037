//go:build unix

package failover_test

import (
	"errors"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/advisory_test/history"
)

// killed: kill -9 of the primary. The standby is promoted at once, and others ask it for the keys of
// the holders.
func killed(c *cast) {
	a, b := c.Primary, c.Standbys[0]
	c.start()
	c.atWork(1)
	c.ends("kill -9", 1, true, a.Crash)
	c.point(b)
	b.Promote()
	c.newcomers(b)
	c.atWork(2)
}

// paused: the primary hangs, a standby is promoted while the holders do not know that yet, and others
// ask it for their keys. Then the old primary goes on as if nothing had happened.
func paused(c *cast) {
	a, b, third := c.Primary, c.Standbys[0], c.Standbys[1]
	third.Cut() // it is to follow b later, and must not be ahead of it
	a.Synchronous("b")
	b.Synchronous("c")
	c.start()
	c.atWork(1)
	c.ends("SIGSTOP", 1, false, a.Pause)
	c.point(b)
	b.Promote()
	c.newcomers(b)
	third.Follow(b) // and confirms what that commits
	c.atWork(2)
	if err := a.Resume(); err != nil {
		c.Fatal(err)
	}
	for _, d := range harness.Drivers[:2] {
		l := c.locker(d.Open(c, a.URL()).DB)
		if _, ok, err := l.TryLock(c.ctx, harness.Key); ok || !errors.Is(err, advisory.ErrUnconfirmed) {
			c.Errorf("%s: a new Locker at the old primary: %v, %v", d.Name, ok, err)
		}
	}
	c.more()
}

// rewound: the old primary, which has written what the standby never got, is started again as a
// primary while the new one is away. Then it becomes a standby by pg_rewind, and is promoted.
func rewound(c *cast) {
	a, b := c.Primary, c.Standbys[0]
	if !a.CanRewind() {
		c.Skip("there is no pg_rewind beside this server's programs")
	}
	c.start()
	c.atWork(1)
	b.Cut()
	c.more() // b never gets these
	c.ends("kill -9", 1, true, a.Crash)
	c.nobodyHolds()
	c.point(b)
	b.Promote()
	c.atWork(2)

	c.ends("immediate stop", 2, true, func() error { return b.Stop("immediate") })
	c.nobodyHolds()
	if err := a.Start(); err != nil {
		c.Fatal(err)
	}
	c.point(a)
	c.refused()
	time.Sleep(time.Second) // waits have a try at the old primary
	c.nobodyHolds()
	if err := a.Stop("fast"); err != nil {
		c.Fatal(err)
	}

	c.restarts(b)
	c.point(b)
	c.atWork(2)
	a.Rewind(b)
	c.ends("kill -9", 2, true, b.Crash)
	c.nobodyHolds()
	c.point(a)
	a.Promote()
	c.atWork(3)
}

// switchedOver: the primary is stopped in order, the standby promoted, and the other way round.
func switchedOver(c *cast) {
	from, to := c.Primary, c.Standbys[0]
	c.start()
	c.atWork(1)
	for timeline := range uint64(2) {
		c.ends("fast stop", timeline+1, true, func() error { return from.Stop("fast") })
		c.nobodyHolds()
		c.point(to)
		to.Promote()
		from.Follow(to)
		c.atWork(timeline + 2)
		from, to = to, from
	}
}

// lagging: the standby has not applied what it got, and has not got what was written last.
func lagging(c *cast) {
	a, b := c.Primary, c.Standbys[0]
	a.Exec("CREATE TABLE t AS SELECT 1 AS n")
	c.start()
	c.atWork(1)
	b.CatchUp(a)
	b.Lag(time.Hour)
	a.Exec("INSERT INTO t VALUES (2)")
	c.more()
	upTo := harness.Ask[string](c, a.Watch, "SELECT pg_current_wal_flush_lsn()::text")
	harness.Eventually(c, "the standby has got that", func() bool {
		return harness.Ask[bool](c, b.Watch, "SELECT pg_last_wal_receive_lsn() >= $1::pg_lsn", upTo)
	})
	b.Cut()
	a.Exec("INSERT INTO t VALUES (3)")
	c.more()
	behind := func(lsn string) int {
		at := harness.Ask[string](c, b.Watch, "SELECT "+lsn+"::text")
		return harness.Ask[int](c, a.Watch, "SELECT pg_current_wal_flush_lsn() - $1::pg_lsn", at)
	}
	unapplied, lost := behind("pg_last_wal_replay_lsn()"), behind("pg_last_wal_receive_lsn()")
	if n := rows(c.T, b); n != 1 || lost <= 0 || unapplied <= lost {
		c.Errorf("the standby shows %d rows, is %d bytes behind, and has not got %d of them", n, unapplied, lost)
	}
	c.Logf("the standby is %d bytes behind as the primary is killed, and has not got %d of them", unapplied, lost)
	c.ends("kill -9", 1, true, a.Crash)
	c.nobodyHolds()
	c.point(b)
	b.Promote()
	c.atWork(2)
	if n := rows(c.T, b); n != 2 {
		c.Errorf("the new primary has %d rows", n)
	}
}

// silent: the primary answers nothing more, while each pool has six idle connections to it. The standby is
// promoted when the holders have been told. Packets to a server on loopback cannot be dropped, so it
// is paused: TestSixIdleConnectionsToASilentHost drops them.
func silent(c *cast) {
	a, b := c.Primary, c.Standbys[0]
	c.start()
	c.atWork(1)
	for _, m := range c.clients {
		leaveIdle(c.T, m.db, 6)
	}
	time.Sleep(1100 * time.Millisecond) // after which pgx asks an idle connection for an answer
	for _, m := range c.clients {
		if n := m.db.Stats().Idle; n != 6 {
			c.Errorf("%s: %d connections are idle", m.driver.Name, n)
		}
	}
	c.ends("SIGSTOP", 1, false, a.Pause)
	c.nobodyHolds()
	c.point(b)
	b.Promote()
	promoted := history.Now()
	c.atWork(2)
	c.Logf("all were back %.2f s after the promotion", history.Now().Since(promoted).Seconds())
	if err := a.Resume(); err != nil {
		c.Fatal(err)
	}
}

// restarts starts a server on the timeline that it had. Nobody holds anything.
func (c *cast) restarts(n *harness.Node) {
	c.Helper()
	c.anew()
	if err := n.Start(); err != nil {
		c.Fatal(err)
	}
}

// anew begins another life of a server on its timeline, when nobody holds anything.
func (c *cast) anew() {
	c.Helper()
	c.nobodyHolds()
	c.restart = append(c.restart, history.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.newest) // the timeline does not tell who has worked since
}
