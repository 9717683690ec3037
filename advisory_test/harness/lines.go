package harness

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// ManyDeaths asks for every call on a dead link to die every death. Without, the suite is quick.
var ManyDeaths = os.Getenv("PGADVISORY_DEAD_LINKS") == "all"

// Lines are lines to one server, which die at the same time.
type lines struct {
	*testing.T
	watch     *Pool // by another way
	holder    sqlconn.Conn
	holderPID int
	calls     sync.WaitGroup
	lag       *Lag
	n         int

	mu    sync.Mutex
	worst map[string]time.Duration
}

// LinesTo makes lines to the server that watch reaches by a way that does not die.
func LinesTo(t *testing.T, watch *Pool) *lines {
	watch.SetMaxOpenConns(8)
	s := &lines{T: t, watch: watch, holder: watch.NewConn(t), worst: map[string]time.Duration{}, lag: WatchLag(t)}
	s.holderPID = Ask[int](t, s.holder, "SELECT pg_backend_pid()")
	return s
}

// Call makes a call on a line of its own, as a subtest beside the others: open opens
// its pool, of connections with this application_name. When the link is back nothing may be left of the call.
func (s *lines) Call(c DeadCall, d Driver, name string, open func(t *testing.T, application string) (*Pool, Mortal)) {
	s.Helper()
	s.n++
	id, busyID := s.n, 1_000_000+s.n
	key, busy := advisory.Int64(int64(id)), advisory.Int64(int64(busyID))
	if !TryLock(s, s.holder, busy) {
		s.Fatal("not free")
	}
	s.calls.Go(func() {
		pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("lines", s.Name())))
		s.Run(fmt.Sprintf("%s/%s%s", c.Name, d.Name, name), func(t *testing.T) {
			application := fmt.Sprintf("line-%d", id)
			p, link := open(t, application)
			l := &Line{T: t, Pool: p, Key: key, Busy: busy, Link: link}
			late := l.Start(c)
			s.mu.Lock()
			s.worst[d.Name] = max(s.worst[d.Name], late)
			s.mu.Unlock()
			Eventually(t, "no connection of the pool is in use", func() bool { return p.Stats().InUse == 0 })
			p.dropBroken(t)
			// What was sent before the call returned may reach the server only now.
			Eventually(t, "the sessions that are not in the pool have ended", func() bool {
				return Ask[int](t, s.watch, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", application) == p.pooled()
			})
			if n := Ask[int](t, s.watch, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid IN ($1, $2) AND pid <> $3", id, busyID, s.holderPID); n != 0 {
				t.Errorf("%d locks are left of the call", n)
			}
			conn := p.NewConn(t)
			if !TryLock(t, conn, key) {
				t.Error("the key is not free")
			}
			Unlock(t, conn, key)
		})
	})
}

// dropBroken has the pool notice which of its idle connections are broken.
func (p *Pool) dropBroken(t testing.TB) {
	t.Helper()
	for range p.Stats().Idle {
		conn, err := p.Conn(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
}

// Wait waits for all calls to end, and for every goroutine that they have begun.
func (s *lines) Wait() {
	s.Helper()
	s.calls.Wait()
	s.Logf("%d calls; the last one returned this long after the end of its time: %v", s.n, s.worst)
	for name, late := range s.worst {
		if most := grace + time.Second + 4*s.lag.Get(); late > most {
			s.Errorf("%s: a call returned %v after the end of its time, more than %v", name, late, most)
		}
	}
	Eventually(s, "every goroutine of the calls has ended", func() bool { return goroutines(s, "lines", s.Name()) == 0 })
}

// goroutines counts those with a label, which goroutines hand on to those that they
// begin.
func goroutines(t testing.TB, label, value string) int {
	t.Helper()
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		t.Fatal(err)
	}
	return strings.Count(b.String(), fmt.Sprintf("# labels: {%q:%q}", label, value))
}
