//go:build unix

package failover_test

import (
	"slices"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory_test/history"
)

// A life is a server's, from one start or promotion to its end: the timeline, and how often a server
// was started again. It takes the place of the session in a Hold, since all sessions end with it.
func (c *cast) life(token uint64, at history.Time) int {
	n := int(token >> 48)
	for _, restart := range c.restart {
		if at > restart {
			n += 1000
		}
	}
	return n
}

// ends notes a fault that ends the life of the server on the timeline. frees tells whether its locks
// are free then.
func (c *cast) ends(kind string, timeline uint64, frees bool, do func() error) {
	c.Helper()
	f := history.Fault{Kind: kind, Ends: frees, Sent: history.Now()}
	f.Session = c.life(timeline<<48, f.Sent)
	if err := do(); err != nil {
		c.Fatalf("%s: %v", kind, err)
	}
	f.Over = history.Now()
	f.Due = f.Over.After(proofTimes.Deadline)
	c.faults = append(c.faults, f)
}

// judge ends the row.
func (c *cast) judge(apart bool) {
	c.Helper()
	c.stop()
	c.done.Wait()
	late := c.lag.Get()
	for i := range c.faults {
		c.faults[i].Due = c.faults[i].Due.After(10 * late)
	}
	lives := map[int]bool{}
	for i := range c.holds {
		h := &c.holds[i]
		if h.Token == 0 {
			c.Errorf("%s of %s has no token", h.How, h.Key)
		}
		h.Opened = 1
		h.Session = c.life(h.Token, h.Got)
		lives[h.Session] = true
	}
	losses, wrong := history.Told(c.holds, c.faults)
	c.report("told too late", wrong)
	c.report("told something else", c.wrong)
	c.report("while a server lives", history.Check(c.holds, c.faults))
	if apart {
		c.report("at any time", history.Check(slices.DeleteFunc(slices.Clone(c.holds), c.grantedLast), nil))
	}
	overlaps := history.Check(c.holds, nil)
	for _, o := range overlaps {
		c.Logf("as a server ended: %v", o)
	}
	lost, worst := c.lost(losses)
	c.Logf("%d holds on %d lives of servers; %d were lost, and told of within %.2f s; %d overlaps as a server ended; this machine was late by up to %v",
		len(c.holds), len(lives), lost, worst.Seconds(), len(overlaps), late)
}

// grantedLast reports whether a server granted the hold while it ended. A shutdown ends the sessions
// one by one, so the lock of one goes to the next before its holder has been told.
func (c *cast) grantedLast(h history.Hold) bool {
	return slices.ContainsFunc(c.faults, func(f history.Fault) bool {
		return f.Ends && f.Session == h.Session && h.Got > f.Sent
	})
}

// lost counts losses, each of which has a fault, and returns how late the latest was told of.
func (c *cast) lost(losses []history.Loss) (n int, worst time.Duration) {
	c.Helper()
	for _, l := range losses {
		if l.Fault == nil {
			c.Errorf("a lock was lost without a fault: %+v", *l.Hold)
			continue
		}
		n++
		worst = max(worst, l.Late)
	}
	if n == 0 {
		c.Error("no lock was lost")
	}
	return n, worst
}

// report fails the test for what is wrong, of which it prints a few.
func (c *cast) report(what string, wrong []error) {
	c.Helper()
	for i, err := range wrong {
		if i == 5 {
			c.Errorf("%s: and %d more", what, len(wrong)-i)
			return
		}
		c.Errorf("%s: %v", what, err)
	}
}
