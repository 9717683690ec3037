//go:build unix

package failover_test

import (
	"slices"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory_test/history"
)

// A life is a server's, from one start or promotion to the loss of all its locks: the timeline, and how
// often there was another life on it. It takes the place of the session in a Hold, since all sessions
// end with it.
func (c *cast) life(token uint64, at history.Time) int {
	n := int(token >> 48)
	for _, restart := range c.restart {
		if at > restart {
			n += 1000
		}
	}
	return n
}

// ends notes a fault that ends the life of the server on the timeline: all its locks are lost within D.
// frees tells whether they are free at once.
func (c *cast) ends(kind string, timeline uint64, frees bool, do func() error) {
	c.Helper()
	f := history.Fault{Kind: kind, Ends: frees, Sent: history.Now()}
	f.Session = c.life(timeline<<48, f.Sent)
	if err := do(); err != nil {
		c.Fatalf("%s: %v", kind, err)
	}
	f.Over = history.Now()
	f.Due = f.Over.After(c.times.Deadline)
	c.faults = append(c.faults, f)
}

// judge ends the row. If it has noted no fault, no lock may have been lost.
func (c *cast) judge(r row) {
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
	if r.twice {
		c.lost(losses)
		c.givenTwice(lives)
		return
	}
	c.report("while a server lives", history.Check(c.holds, c.faults))
	if r.apart {
		c.report("at any time", history.Check(slices.DeleteFunc(slices.Clone(c.holds), c.grantedLast), nil))
	}
	overlaps := history.Check(c.holds, nil)
	for _, o := range overlaps {
		c.Logf("as a server ended: %v", o)
	}
	lost, worst := c.lost(losses)
	c.Logf("%d holds on %d lives of servers; %d were lost, and told of within %.2f s; %d overlaps as a server ended; this machine was late by up to %v",
		len(c.holds), len(lives), lost, worst.Seconds(), len(overlaps), late)
	if gap, ok := c.gap(); ok {
		c.Logf("the next holder came %.3f s after one who lost the key, at the least", gap.Seconds())
	}
}

// gap returns the shortest time between the end of a hold that was lost and the next hold of the key.
func (c *cast) gap() (least time.Duration, ok bool) {
	for _, lost := range c.holds {
		for _, h := range c.holds {
			if lost.Told == 0 || h.Key != lost.Key || h.Got <= lost.Got {
				continue
			}
			if d := h.Got.Since(lost.Alive); !ok || d < least {
				least, ok = d, true
			}
		}
	}
	return least, ok
}

// givenTwice fails the test unless each key that is held for long had holders on two servers at once.
// On each server nobody may hold a key beside another.
func (c *cast) givenTwice(lives map[int]bool) {
	c.Helper()
	for life := range lives {
		other := func(h history.Hold) bool { return h.Session != life }
		c.report("on one server", history.Check(slices.DeleteFunc(slices.Clone(c.holds), other), nil))
	}
	for _, key := range matrixKept {
		holds := c.of(key)
		for i := range holds {
			holds[i].Token = 0 // the old primary's are smaller
		}
		twice := history.Check(holds, nil)
		c.Logf("%v was held on both servers at once: %d times", key, len(twice))
		if len(twice) == 0 {
			c.Errorf("%v was held on one server at a time, which is better than docs/failover.md says", key)
		}
	}
}

// grantedLast reports whether a server granted the hold while it ended. A shutdown ends the sessions
// one by one, so the lock of one goes to the next before its holder has been told.
func (c *cast) grantedLast(h history.Hold) bool {
	return slices.ContainsFunc(c.faults, func(f history.Fault) bool {
		return f.Ends && f.Session == h.Session && h.Got > f.Sent
	})
}

// lost counts losses, and returns how late the latest was told of. Each has a fault.
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
	if n == 0 && len(c.faults) > 0 {
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
