//go:build unix

package failover_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/advisory_test/history"
	"github.com/pgadvisory/pgadvisory/internal/failover"
	"github.com/pgadvisory/pgadvisory/locker"
)

// A cast is who works in a row of the matrix. Half of it works through each driver, all on the same
// keys: a holder for each driver, who has the other driver's waiting for its key, a leader and a
// candidate, and 50 goroutines that take turns on five keys.
type cast struct {
	*testing.T
	*harness.Replication
	diary
	lag     *harness.Lag
	times   failover.Times
	opts    []locker.Option
	clients []*matrixClient
	lockers []*locker.Locker
	pass    [2]chan struct{} // has the holder of a key release it
	ctx     context.Context
	stop    context.CancelFunc
	faults  []history.Fault
	restart []history.Time // of a server that gave out locks anew on its timeline
}

// A matrixClient is one driver's half of the cast.
type matrixClient struct {
	driver harness.Driver
	db     *sql.DB
	point  func(*harness.Node) // has new connections lead to a server
	l      *locker.Locker
	first  int // of its processes
}

// Each goroutine is a process of the diary. They are numbered within each client.
const (
	turners  = 25
	turnKeys = 5
	leading  = turners
	holding  = turners + 1 // and one more, for each key of matrixKept
)

var (
	matrixLed  = advisory.Name("matrix", "led")
	matrixKept = [2]advisory.Key{advisory.Name("matrix", "kept 0"), advisory.Name("matrix", "kept 1")}
)

// newCast has servers started, and a cast for the row.
func newCast(t *testing.T, of row) *cast {
	t.Helper()
	r := harness.NewReplication(t, of.standbys, of.settings...)
	c := &cast{T: t, Replication: r, lag: harness.WatchLag(t)}
	c.times = failover.Of(cmp.Or(of.failover, proofTimes.Failover), failover.DefaultHeartbeat)
	c.ctx, c.stop = context.WithCancel(context.Background())
	t.Cleanup(c.close)
	c.opts = append([]locker.Option{locker.WithFailover(c.times.Failover), locker.WithFencing()}, of.options...)
	for i, d := range harness.Drivers[:2] {
		m := &matrixClient{driver: d, first: 100 * (i + 1)}
		m.db, m.point = matrixPool(t, d, r)
		m.l = c.locker(m.db)
		c.clients = append(c.clients, m)
	}
	for i := range c.pass {
		c.pass[i] = make(chan struct{})
	}
	return c
}

// locker returns a Locker of the cast's options.
func (c *cast) locker(db *sql.DB) *locker.Locker {
	l := locker.New(db, c.opts...)
	c.lockers = append(c.lockers, l)
	return l
}

// close ends the work, and then the Lockers.
func (c *cast) close() {
	c.stop()
	c.done.Wait()
	for _, l := range c.lockers {
		l.Close() // a server that is paused does not answer
	}
}

// matrixPool returns a pool that leads to the primary: lib/pq by an address that changes, pgx by a DSN
// of all hosts that asks for a primary.
func matrixPool(t *testing.T, d harness.Driver, r *harness.Replication) (*sql.DB, func(*harness.Node)) {
	t.Helper()
	const timeout = "connect_timeout=2"
	if d.Name == "pgx" {
		nodes := append([]*harness.Node{r.Primary}, r.Standbys...)
		return d.Open(t, harness.DSN(t, nodes...)+" "+timeout).DB, func(*harness.Node) {}
	}
	db, p := newPointer(t, d, r.Primary)
	point := func(n *harness.Node) { p.to.Store(new(n.URL() + "&" + timeout)) }
	point(r.Primary)
	return db, point
}

// start has all work.
func (c *cast) start() {
	for i, m := range c.clients {
		for n := range turners {
			key := advisory.Name("matrix", "turns", string(rune('0'+n%turnKeys)))
			c.again(func() error { return m.l.Do(c.ctx, key, c.work(m.first+n, "Do", key, 5*time.Millisecond)) })
		}
		c.again(func() error { return m.l.Lead(c.ctx, matrixLed, c.work(m.first+leading, "Lead", matrixLed, time.Hour)) })
		for k := range matrixKept {
			k = (k + i) % 2
			c.again(func() error { return c.keep(m, k) })
		}
	}
}

// newcomers has others ask n for the keys that are held: they know nothing of another server.
func (c *cast) newcomers(n *harness.Node) {
	for i, d := range harness.Drivers[:2] {
		db := d.Open(c, n.URL()).DB
		m := &matrixClient{driver: d, db: db, l: c.locker(db), first: 100 * (i + 3)}
		for k := range matrixKept {
			c.again(func() error { return c.keep(m, k) })
		}
	}
}

// again repeats a call until the row ends. Its errors are to be losses, or that no standby has
// confirmed yet.
func (c *cast) again(do func() error) {
	c.done.Go(func() {
		for c.ctx.Err() == nil {
			err := do()
			if err == nil || c.ctx.Err() != nil {
				continue
			}
			if !errors.Is(err, advisory.ErrLost) && !errors.Is(err, advisory.ErrUnconfirmed) {
				c.Errorf("a call that waits failed: %v", err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
}

// keep waits for a key and holds it until it is lost, or to be passed on.
func (c *cast) keep(m *matrixClient, k int) error {
	h := history.Hold{Process: m.first + holding + k, How: "Lock", Key: matrixKept[k].String(), Asked: history.Now()}
	lock, err := m.l.Lock(c.ctx, matrixKept[k])
	if err != nil {
		return err
	}
	h.Got, h.Token = history.Now(), lock.Token()
	c.begin(h.Process, matrixKept[k], h.Token)
	select {
	case <-lock.Context().Done():
	case <-c.pass[k]:
	case <-c.ctx.Done():
	}
	c.end(lock.Context(), h)
	return lock.Unlock()
}

// has reports whether a process has worked on the timeline.
func (c *cast) has(process int, timeline uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newest[process]>>48 == timeline
}

// atWork waits until all have worked on the timeline.
func (c *cast) atWork(timeline uint64) {
	c.Helper()
	c.turning(timeline)
	c.keeping(timeline)
}

// turning waits for each that takes turns, and a leader.
func (c *cast) turning(timeline uint64) {
	c.Helper()
	one, two := c.clients[0].first, c.clients[1].first
	harness.Eventually(c, "all take turns again", func() bool {
		for n := range turners {
			if !c.has(one+n, timeline) || !c.has(two+n, timeline) {
				return false
			}
		}
		return true
	})
	harness.Eventually(c, "somebody leads", func() bool { return c.has(one+leading, timeline) || c.has(two+leading, timeline) })
}

// keeping waits, for each key that is held for long, for the one that gets it first and the one that
// waits.
func (c *cast) keeping(timeline uint64) {
	c.Helper()
	one, two := c.clients[0].first, c.clients[1].first
	for k, key := range matrixKept {
		harness.Eventually(c, "both have had "+key.String(), func() bool {
			select {
			case c.pass[k] <- struct{}{}:
			default:
			}
			time.Sleep(20 * time.Millisecond) // until the one that waits has it
			return c.has(one+holding+k, timeline) && c.has(two+holding+k, timeline)
		})
	}
}

// more waits for a hundred turns more.
func (c *cast) more() {
	c.Helper()
	count := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.holds)
	}
	most := count() + 100
	harness.Eventually(c, "turns are taken", func() bool { return count() >= most })
}

// nobodyHolds waits until all holds have ended.
func (c *cast) nobodyHolds() {
	c.Helper()
	harness.Eventually(c, "all have been told", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.open == 0
	})
}

// point has new connections lead to n.
func (c *cast) point(n *harness.Node) {
	for _, m := range c.clients {
		m.point(n)
	}
}

// refused fails the test unless the cast's Lockers, and new ones of their pools, refuse the server
// that the pools lead to, as an old primary.
func (c *cast) refused() {
	c.Helper()
	for _, m := range c.clients {
		another := locker.New(m.db, c.opts...)
		for what, l := range map[string]*locker.Locker{"the Locker": m.l, "another Locker": another} {
			_, ok, err := l.TryLock(c.ctx, harness.Key)
			unsafe, is := errors.AsType[*advisory.UnsafeServerError](err)
			if ok || !is || unsafe.Reason != advisory.StalePrimary {
				c.Errorf("%s: %s on the old primary: %v, %v", m.driver.Name, what, ok, err)
			}
		}
		if err := another.Close(); err != nil {
			c.Error(err)
		}
	}
}
