//go:build unix

package failover_test

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/advisory_test/history"
)

// noStandby: the only standby stops. No lock is given out before it is back.
func noStandby(c *cast) {
	b := c.Standbys[0]
	c.confirmedBy("b")
	c.ends("fast stop of the standby", 1, false, func() error { return b.Stop("fast") })
	c.unproven()
	c.restarts(b)
	c.atWork(1)
}

// healed: the replication is cut and healed while beats wait. Work goes on meanwhile, and nothing is lost.
func healed(c *cast) {
	b := c.Standbys[0]
	c.confirmedBy("b")
	b.Cut()
	c.beatsWait(2)
	time.Sleep(5 * time.Second) // for longer than two beats
	c.more()
	b.Heal()
	c.beatsWait(0)
	c.atWork(1)
	c.more()
}

// clientsKilled: the holders are processes of their own, one for each driver, which are killed with -9
// while their beats wait. The beats stay, and the cast, who wait for the keys, have them.
func clientsKilled(c *cast) {
	a, b := c.Primary, c.Standbys[0]
	a.Synchronous("b")
	var holders [2]*harness.Peer
	var holds [2]history.Hold
	for k, d := range harness.Drivers[:2] {
		key := matrixKept[k].String()
		holds[k] = history.Hold{Process: 500 + k, How: "Lock", Key: key, Asked: history.Now()}
		holders[k] = harness.Order{Job: "hold with a standby", Driver: d.Sql, URL: a.URL(), Args: []string{d.Name, key, time.Minute.String()}}.Start(c)
		token, err := strconv.ParseUint(strings.TrimSpace(holders[k].Says("held", harness.Patience)), 10, 64)
		if err != nil {
			c.Fatal(err)
		}
		holds[k].Got, holds[k].Token = history.Now(), token
	}
	c.start()
	c.turning(1)
	b.Cut()
	c.beatsWait(4)
	for k := range holders {
		holds[k].Alive = history.Now()
		holders[k].Kill()
	}
	c.keeping(1)
	free := history.Now().Since(holds[0].Alive)
	c.beatsWait(4)
	c.Logf("the keys were free, and all had had them, %.2f s after the kill, while the beats of the killed wait", free.Seconds())
	c.lag.InTime(c, free, proofTimes.Failover)
	c.mu.Lock()
	c.holds = append(c.holds, holds[:]...)
	c.mu.Unlock()
	b.Heal()
	c.beatsWait(0)
	c.more()
}

// beatsCancelled: a beat that is cancelled is answered, and counts as one confirmation, from when it was
// sent.
func beatsCancelled(c *cast) {
	c.confirmedBy("b")
	c.ends("the last beat is sent", 1, false, func() error {
		c.cutAfterABeat()
		c.beatsWait(2)
		return nil
	})
	c.answered(func() { c.Primary.Exec("SELECT pg_cancel_backend(pid) " + waitingBeats) })
}

// beatsTerminated: a beat whose session is terminated confirms nothing.
func beatsTerminated(c *cast) {
	c.confirmedBy("b")
	c.ends("cut", 1, false, c.cutAfterABeat)
	c.answered(func() { c.Primary.Exec("SELECT pg_terminate_backend(pid) " + waitingBeats) })
}

// beatsReloaded: a beat that the server answers because the names became empty confirms nothing.
func beatsReloaded(c *cast) {
	c.confirmedBy("b")
	c.ends("cut", 1, false, c.cutAfterABeat)
	c.answered(func() { c.Primary.Synchronous("") })
}

// anotherConfirms: with ANY 1 of two standbys the one that is not promoted confirms. Newcomers at the new
// primary have the keys that holders at the old one do not lose. docs/failover.md says so.
func anotherConfirms(c *cast) {
	b := c.Standbys[0]
	b.Synchronous("*")
	c.confirmedBy("ANY 1 (b, c)")
	b.Cut()
	b.Promote()
	c.AddStandby(b)
	c.newcomers(b)
	for k, key := range matrixKept {
		harness.Eventually(c, "a newcomer has "+key.String(), func() bool { return c.has(300+holding+k, 2) || c.has(400+holding+k, 2) })
	}
	c.more()
}

// confirmedBy has all work, with these standbys.
func (c *cast) confirmedBy(names string) {
	c.Helper()
	c.Primary.Synchronous(names)
	c.start()
	c.atWork(1)
}

const waitingBeats = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query ~ 'emit_message'"

// beatsWait waits until that many beats wait for a standby.
func (c *cast) beatsWait(n int) {
	c.Helper()
	harness.Eventually(c, strconv.Itoa(n)+" beats wait for a standby", func() bool {
		return harness.Ask[int](c, c.Primary.Watch, "SELECT count(*) "+waitingBeats) == n
	})
}

// cutAfterABeat cuts the standby off just after a beat. The next beat is sent as late as can be, so that
// one who counted it would go on for longer than D after the cut.
func (c *cast) cutAfterABeat() error {
	c.Helper()
	harness.Eventually(c, "a beat is confirmed", func() bool {
		return harness.Ask[bool](c, c.Primary.Watch, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE state = 'idle' AND query ~ 'conf_load_time' AND query_start > clock_timestamp() - interval '20 ms')")
	})
	c.Standbys[0].Cut()
	return nil
}

// answered has the server answer the beats that wait. All locks are lost nevertheless, and none is given
// out before the standby is back.
func (c *cast) answered(answer func()) {
	c.Helper()
	a, b := c.Primary, c.Standbys[0]
	c.beatsWait(2)
	time.Sleep(c.times.Deadline / 2) // D does not begin with the answer
	answer()
	c.unproven()
	c.anew()
	b.Heal()
	b.CatchUp(a)
	a.Synchronous("b")
	c.atWork(1)
}

// unproven waits until no Locker gives out a lock for want of a standby.
func (c *cast) unproven() {
	c.Helper()
	for _, m := range c.clients {
		harness.Eventually(c, m.driver.Name+": no lock is given out", func() bool {
			lock, ok, err := m.l.TryLock(c.ctx, advisory.Name("matrix", "unproven", m.driver.Name))
			if ok {
				lock.Unlock()
			}
			return errors.Is(err, advisory.ErrUnconfirmed) || unsafeReason(err) == advisory.NoStandby
		})
	}
}
