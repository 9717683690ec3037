package conn_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// A grantEnd is how a wait ends at about the moment in which the lock is granted.
type grantEnd struct {
	name string
	opts []advisory.Option
	// near releases the holder's lock, and has the wait end after that.
	near func(r *grantRace, after time.Duration)
	is   func(err error) bool
}

const shortWait = 6 * time.Millisecond

var grantEnds = []grantEnd{
	{
		name: "pg_cancel_backend",
		near: func(r *grantRace, after time.Duration) {
			for !r.sees("SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = $1 AND (query LIKE '/*pgadvisory waits%' OR wait_event_type = 'Lock')", r.pid) {
			}
			var wg sync.WaitGroup
			wg.Go(func() { time.Sleep(-after); r.release() })
			time.Sleep(after)
			r.sees("SELECT pg_cancel_backend($1)", r.pid)
			wg.Wait()
		},
		is: func(err error) bool { return strings.Contains(err.Error(), "cancel") },
	},
	{
		name: "MaxWait",
		opts: []advisory.Option{advisory.MaxWait(shortWait)},
		near: func(r *grantRace, after time.Duration) { time.Sleep(shortWait - after); r.release() },
		is:   func(err error) bool { return errors.Is(err, advisory.ErrNotAcquired) },
	},
}

// A wait that ends from outside, by timeout or by pg_cancel_backend, either has the
// lock or leaves nothing, at whatever moment it ends.
func TestWaitThatEndsAtTheGrant(t *testing.T) {
	pgtest.Slow(t)
	harness.EachDriverAtOnce(t, func(t *testing.T, p *harness.Pool) {
		for _, e := range grantEnds {
			r := newGrantRace(p, t, e)
			allGot, allEnded := 0, 0
			for _, kind := range kinds {
				r.wait = func(held func()) error { return kind.wait(context.Background(), r.waiter, raceKey, held, e.opts...) }
				got, ended, left := r.Run(20*harness.Rounds(t), 1)
				t.Logf("%s, %s: %d got the lock, %d ended", kind.name, e.name, got, ended)
				if left > 0 {
					t.Errorf("%s, %s: the lock was left behind", kind.name, e.name)
				}
				allGot, allEnded = allGot+got, allEnded+ended
			}
			if allGot == 0 || allEnded == 0 {
				t.Errorf("%s: nothing ended near the grant: %d got the lock, %d ended", e.name, allGot, allEnded)
			}
		}
	})
}

// The same harness sees what a plain wait leaves behind.
func TestPlainWaitThatEndsAtTheGrantLeavesTheLock(t *testing.T) {
	pgtest.Slow(t)
	p := harness.Drivers[0].Open(t, pgtest.URL(t))
	for _, e := range grantEnds {
		r := newGrantRace(p, t, e)
		lock, fails := "SELECT pg_advisory_lock("+raceKey.SQL()+")", errors.New("failed")
		if len(e.opts) > 0 {
			lock, fails = fmt.Sprintf("SET lock_timeout = '%v'; ", shortWait)+lock, advisory.ErrNotAcquired
		}
		r.wait = func(held func()) error {
			if _, err := r.waiter.Exec(lock); err != nil {
				return fmt.Errorf("%w: %w", fails, err)
			}
			held()
			_, err := r.waiter.Exec("SELECT pg_advisory_unlock(" + raceKey.SQL() + ")")
			return err
		}
		got, ended, left := r.Run(3000, 3)
		t.Logf("%s: %d got the lock, %d ended, %d of them left it behind", e.name, got, ended, left)
		if left == 0 {
			t.Errorf("%s: nothing was left behind", e.name)
		}
	}
}

// raceKey has an object that tells it from others in pg_locks.
var raceKey = advisory.Pair(7, 4820)

// A grantRace is for waits on a pool of one connection that end when the lock is
// granted.
type grantRace struct {
	grantEnd
	t               testing.TB
	waiter          *harness.Pool
	holder, monitor *sql.DB
	wait            func(held func()) error // calls held once it has the lock, then releases it
	pid             int                     // of the waiter's session
}

func newGrantRace(p *harness.Pool, t testing.TB, e grantEnd) *grantRace {
	t.Helper()
	r := &grantRace{grantEnd: e, t: t, waiter: p.By.Open(t, p.Url), holder: harness.Drivers[0].Open(t, p.Url).DB, monitor: harness.Drivers[0].Open(t, p.Url).DB}
	r.waiter.SetMaxOpenConns(1)
	r.holder.SetMaxOpenConns(1)
	r.monitor.SetMaxOpenConns(1)
	return r
}

// Run has n waits end, or fewer if the lock was left behind enough times.
func (r *grantRace) Run(n, enough int) (got, ended, left int) {
	r.t.Helper()
	after := time.Duration(0) // stays where both outcomes occur
	for range n {
		r.pid = r.session()
		harness.DoSQL(r.t, r.holder, "SELECT pg_advisory_lock("+raceKey.SQL()+")")
		near, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- r.wait(func() {
				<-near // a cancel may be on its way
				if !r.holds() {
					r.t.Errorf("%s: the lock was reported as got and is not held", r.name)
				}
			})
		}()
		r.near(r, after+rand.N(400*time.Microsecond)-200*time.Microsecond)
		close(near)
		err := <-done

		switch {
		case err == nil:
			got++
			after = max(after-20*time.Microsecond, -5*time.Millisecond)
		case r.is(err):
			ended++
			after = min(after+20*time.Microsecond, 5*time.Millisecond)
		default:
			r.t.Fatalf("%s: %v", r.name, err)
		}
		if r.left() {
			left++
		}
		if left == enough {
			break
		}
	}
	return got, ended, left
}

func (r *grantRace) release() {
	if _, err := r.holder.Exec("SELECT pg_advisory_unlock(" + raceKey.SQL() + ")"); err != nil {
		r.t.Error(err)
	}
}

// session returns the pid of the waiter's session.
func (r *grantRace) session() (pid int) {
	const query = "SELECT pg_backend_pid()"
	if err := r.waiter.QueryRow(query).Scan(&pid); err == nil {
		return pid
	} // it was hit by a late cancel
	return harness.Ask[int](r.t, r.waiter, query)
}

// left reports whether the lock has stayed on the pooled connection, and releases it.
func (r *grantRace) left() bool {
	if r.session() != r.pid { // it was discarded, and is going
		harness.Eventually(r.t, "a discarded connection has released its lock", func() bool { return !r.holds() })
		return false
	}
	if !r.holds() {
		return false
	}
	harness.DoSQL(r.t, r.waiter, "SELECT pg_advisory_unlock_all()")
	return true
}

func (r *grantRace) holds() bool {
	return r.sees("SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND objid = 4820 AND pid = $1", r.pid)
}

func (r *grantRace) sees(query string, args ...any) (is bool) {
	if err := r.monitor.QueryRow(query, args...).Scan(&is); err != nil {
		r.t.Error(err)
	}
	return is
}
