package conn_test

import (
	"cmp"
	"context"
	"database/sql"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
)

// cancelCalls has n calls of a form end around the moment of the grant, and on until
// the tally is enough, and looks after each what is left on the pooled connection.
func cancelCalls(t *testing.T, workers []*worker, f form, n int, enough func(tally) bool) tally {
	t.Helper()
	c := &cancelling{t: t, form: f, n: n, enough: enough, tally: tally{form: f}}
	if !f.waits { // those are timed by a loop that keeps a processor busy
		workers = workers[:1]
	}
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(func() { w.work(c) })
	}
	wg.Wait()
	return c.tally
}

// A cancelling is what its workers share.
type cancelling struct {
	t      *testing.T
	form   form
	n      int
	enough func(tally) bool

	mu    sync.Mutex
	begun int
	tally tally
}

// more reports whether another call is to be made.
func (c *cancelling) more() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.t.Failed() || c.begun >= max(20*c.n, 5000) || c.begun >= c.n && c.enough(c.tally) {
		return false
	}
	c.begun++
	return true
}

// A worker makes one call after another on a pool of one connection, so that a
// lock that is left is on the very connection that the pool hands out next.
type worker struct {
	*cancelling
	pool    *harness.Pool
	unlocks atomic.Int64 // messages that unlock, on the pool
	holder  *sql.DB
	calls   int

	latency time.Duration // from the call or the release to the grant, as it was of late
	lead    time.Duration // from the call to the wait, as it was of late
}

// workers returns workers for the time of the test.
func workers(p *harness.Pool, t *testing.T, n int) []*worker {
	t.Helper()
	workers := make([]*worker, n)
	for i := range workers {
		w := &worker{holder: harness.Drivers[0].Open(t, p.Url).DB}
		w.pool = openWatched(p.By, t, p.Url, &w.unlocks)
		w.pool.SetMaxOpenConns(1)
		w.holder.SetMaxOpenConns(1)
		workers[i] = w
	}
	return workers
}

func (w *worker) work(c *cancelling) {
	w.cancelling, w.latency, w.lead = c, 500*time.Microsecond, 2*time.Millisecond
	if _, err := w.left(); err != nil { // which connects
		w.t.Error(err)
		return
	}
	for w.more() {
		w.calls++
		if err := w.one(); err != nil {
			w.t.Error(err)
			return
		}
	}
}

// one makes one call that ends around the moment of the grant.
func (w *worker) one() error {
	a := w.attempt()
	unlocks := w.unlocks.Load()
	var err error
	if w.form.waits {
		err = w.endWait(a)
	} else {
		err = w.endTry(a)
	}
	if !w.form.naive {
		if err := a.judge(err); err != nil {
			return err
		}
		a.undone += int(w.unlocks.Load() - unlocks)
		if a.undone > 0 && !a.got.IsZero() {
			a.undone-- // the test's own
		}
	}
	left, lerr := w.left()
	if lerr != nil {
		return lerr
	}
	w.mu.Lock()
	w.tally.add(a, err, left, w.latency)
	w.tally.visible = w.tally.visible || w.unlocks.Load() > 0
	w.mu.Unlock()
	w.adapt(a)
	return nil
}

// adapt sees to it that half of the calls end before the grant, however busy the
// machine is.
func (w *worker) adapt(a *attempt) {
	most := time.Second
	if w.form.naive { // one of them hardly ever reports a grant
		most = 20 * time.Millisecond
	}
	switch {
	case a.missed:
	case a.got.IsZero():
		w.latency = min(w.latency*11/10, most)
	default:
		w.latency = max(w.latency*10/11, 20*time.Microsecond)
	}
}

// endTry makes a call for a free key, whose ctx ends at some time from its beginning
// to twice its usual latency.
func (w *worker) endTry(a *attempt) error {
	after := rand.N(2 * w.latency)
	if w.calls%8 == 0 { // timers are coarse
		ctx, cancel := context.WithTimeout(a.ctx, after)
		defer cancel()
		a.ctx = ctx
		err := w.form.run(w.pool, a)
		<-ctx.Done()
		return err
	}
	ctx, cancel := context.WithCancel(a.ctx)
	a.ctx = ctx
	end := time.Now().Add(after)
	go func() {
		until(end)
		cancel()
	}()
	err := w.form.run(w.pool, a)
	<-ctx.Done() // with the lock released, or not
	return err
}

// endWait makes a call for a key that another session holds, and releases at about
// the time at which the wait ends: by cancel, by a deadline, or by MaxWait.
func (w *worker) endWait(a *attempt) error {
	after := rand.N(3*w.latency) - w.latency // from the release to the end
	release := func(waits time.Time) time.Time { return waits.Add(w.latency + rand.N(w.latency)) }
	end := time.Now().Add(2*w.lead + 2*w.latency)
	switch w.calls % 3 {
	case 0:
		ctx, cancel := context.WithCancel(a.ctx)
		a.ctx = ctx
		var canceler sync.WaitGroup
		defer canceler.Wait()
		return w.Wait(a, func(waits time.Time) time.Time {
			at := release(waits)
			canceler.Go(func() {
				time.Sleep(time.Until(at.Add(after)))
				cancel()
			})
			return at
		})
	case 1:
		ctx, cancel := context.WithDeadline(a.ctx, end)
		defer cancel()
		a.ctx = ctx
	default:
		if w.form.naive {
			ctx, cancel := context.WithDeadline(a.ctx, end)
			defer cancel()
			a.ctx = ctx
		}
		a.maxWait = time.Until(end)
	}
	return w.Wait(a, func(time.Time) time.Time { return end.Add(-after) })
}

// Wait makes a call for a key that another session holds. As soon as the call is seen
// to wait, release says when the key is to be released.
func (w *worker) Wait(a *attempt, release func(waits time.Time) time.Time) error {
	ctx := context.Background()
	if _, err := w.holder.ExecContext(ctx, "SELECT pg_advisory_lock("+a.key().SQL()+")"); err != nil {
		return err
	}
	done, start := make(chan error, 1), time.Now()
	go func() { done <- w.form.run(w.pool, a) }()
	time.Sleep(w.lead / 2)
	for !a.waited && len(done) == 0 {
		if err := w.holder.QueryRowContext(ctx, waitsFor(a.key())).Scan(&a.waited); err != nil {
			return err
		}
	}
	waits := time.Now()
	w.lead = (7*w.lead + waits.Sub(start)) / 8
	at := release(waits)
	a.missed = !a.waited || waits.After(at)
	time.Sleep(time.Until(at))
	_, err := w.holder.ExecContext(ctx, "SELECT pg_advisory_unlock("+a.key().SQL()+")")
	return cmp.Or(<-done, err)
}

// left counts the locks that the pooled connection holds, if the pool has any, and
// releases them.
func (w *worker) left() (n int, err error) {
	end := time.Now().Add(harness.Patience)
	for {
		// A driver may have told the server to cancel whatever runs now.
		err = w.pool.QueryRow("SELECT count(*), pg_advisory_unlock_all()::text FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()").Scan(&n, new(any))
		if err == nil || !w.form.naive || time.Now().After(end) {
			return n, err
		}
	}
}

// until sleeps until then, more precisely than a timer, which may be a
// millisecond late. It keeps a processor busy.
func until(then time.Time) {
	const coarse = time.Millisecond
	time.Sleep(time.Until(then) - coarse)
	for time.Until(then) > 0 {
	}
}
