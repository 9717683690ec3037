//go:build unix

package failover_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/advisory_test/history"
	"github.com/pgadvisory/pgadvisory/internal/failover"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// proofTimes are those of the Lockers here: D is 2 s, the grace 3 s, and a beat is sent every 500 ms.
var proofTimes = failover.Of(5*time.Second, failover.DefaultHeartbeat)

// proofLocker is a Locker that requires a standby, or not. What cannot be closed at the end of the test
// is on a server that does not answer.
func proofLocker(t *testing.T, d harness.Driver, n *harness.Node, opts ...locker.Option) *locker.Locker {
	t.Helper()
	l := locker.New(d.Open(t, n.URL()).DB, append([]locker.Option{locker.WithFailover(proofTimes.Failover)}, opts...)...)
	t.Cleanup(func() { l.Close() })
	return l
}

// A diary is who held what, and when.
type diary struct {
	mu     sync.Mutex
	holds  []history.Hold
	open   int                          // holds that have not ended
	begun  map[advisory.Key]map[int]int // how often each process had a key
	newest map[int]uint64               // the last token of each process
	wrong  []error
	done   sync.WaitGroup
}

// begin counts a hold.
func (d *diary) begin(process int, key advisory.Key, token uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.begun == nil {
		d.begun, d.newest = map[advisory.Key]map[int]int{}, map[int]uint64{}
	}
	if d.begun[key] == nil {
		d.begun[key] = map[int]int{}
	}
	d.begun[key][process]++
	d.newest[process] = token
	d.open++
}

// end writes down a hold whose Context is ctx.
func (d *diary) end(ctx context.Context, h history.Hold) {
	h.Alive = history.Now()
	cause := context.Cause(ctx)
	if errors.Is(cause, advisory.ErrLost) {
		h.Told = h.Alive
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holds = append(d.holds, h)
	d.open--
	if cause != nil && h.Told == 0 && !errors.Is(cause, context.Canceled) {
		d.wrong = append(d.wrong, fmt.Errorf("process %d, key %s: the Context of %s ended with %w", h.Process, h.Key, h.How, cause))
	}
}

// times returns how often a process had a key.
func (d *diary) times(process int, key advisory.Key) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.begun[key][process]
}

// hold writes down the lock that take returns, until its Context ends or the test says so.
func (d *diary) hold(ctx context.Context, process int, key advisory.Key, take func() (advisory.Lock, error)) (advisory.Lock, error) {
	h := history.Hold{Process: process, How: "Lock", Key: key.String(), Asked: history.Now()}
	lock, err := take()
	if err != nil {
		return nil, err
	}
	h.Got, h.Token = history.Now(), lock.Token()
	d.begin(process, key, h.Token)
	d.done.Go(func() {
		select {
		case <-lock.Context().Done():
		case <-ctx.Done():
		}
		d.end(lock.Context(), h)
	})
	return lock, nil
}

// work is what runs under a lock for d, or until its ctx ends.
func (d *diary) work(process int, how string, key advisory.Key, most time.Duration) func(context.Context) error {
	asked := history.Now()
	return func(ctx context.Context) error {
		h := history.Hold{Process: process, How: how, Key: key.String(), Asked: asked, Got: history.Now()}
		if lock, ok := advisory.FromContext(ctx); ok {
			h.Token = lock.Token()
		}
		d.begin(process, key, h.Token)
		select {
		case <-ctx.Done():
		case <-time.After(most):
		}
		d.end(ctx, h)
		return nil
	}
}

// crowd has many goroutines of a Locker work under one key by turns, and one lead under another, until ctx
// ends.
func (d *diary) crowd(ctx context.Context, process int, l *locker.Locker, turns, lead advisory.Key) {
	again := func(do func() error) {
		d.done.Go(func() {
			for ctx.Err() == nil {
				if do() != nil {
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	for range 50 {
		again(func() error { return l.Do(ctx, turns, d.work(process, "Do", turns, 5*time.Millisecond)) })
	}
	again(func() error { return l.Lead(ctx, lead, d.work(process, "Lead", lead, time.Hour)) })
}

// of returns the holds of a key, the older first.
func (d *diary) of(key advisory.Key) (holds []history.Hold) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.holds {
		if h.Key == key.String() {
			if len(holds) > 0 && h.Got < holds[0].Got {
				holds = append([]history.Hold{h}, holds...)
			} else {
				holds = append(holds, h)
			}
		}
	}
	return holds
}

// A promotion is how a standby is promoted while its primary lives.
type promotion struct {
	cut   bool          // the replication is cut before
	after time.Duration // that
}

func (p promotion) String() string { return fmt.Sprintf("cut %t, promoted after %v", p.cut, p.after) }

// A standby is promoted while the primary lives, and goes on granting locks. With WithStandby the old
// holder has stopped before the promoted server gives out the key. Two controls show that this is the
// work of the proof and of the grace: a new holder without a grace, and both without WithStandby.
// PGADVISORY_PROMOTIONS says how many promotions there are.
func TestHoldersAcrossAPromotionWithStandby(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	kinds := []promotion{{true, 0}, {false, time.Second}, {false, 0}, {true, time.Second}, {true, 5 * time.Second}, {false, 5 * time.Second}}
	n := harness.Number(t, "PGADVISORY_PROMOTIONS", 2)
	for from := 0; from < n; from += 2 {
		harness.AtOnce(t, func(all *harness.Together) {
			for i := from; i < min(from+2, n); i++ {
				p := kinds[i%len(kinds)]
				all.Start(fmt.Sprintf("%d: %v", i+1, p), func(t *testing.T) { holdAcross(t, p) })
			}
		})
	}
}

func holdAcross(t *testing.T, p promotion) {
	r := harness.NewReplication(t, 2)
	a, b, c := r.Primary, r.Standbys[0], r.Standbys[1]
	c.Cut() // it is to follow b later, and must not be ahead of it
	a.Synchronous("b")
	b.Synchronous("c")
	lag := harness.WatchLag(t)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var d diary
	// For each driver: with the proof on both sides, with the proof and no grace, without a proof.
	scene := func(i, kind int) advisory.Key { return advisory.Pair(int32(kind), int32(i)) }
	const proven, noGrace, plain, turns, lead = 1, 2, 3, 4, 5
	for i, driver := range harness.Drivers[:2] {
		strict, free := proofLocker(t, driver, a, locker.WithStandby()), proofLocker(t, driver, a)
		for kind, l := range map[int]*locker.Locker{proven: strict, noGrace: strict, plain: free} {
			key := scene(i, kind)
			if _, err := d.hold(ctx, 1, key, func() (advisory.Lock, error) { return l.Lock(ctx, key) }); err != nil {
				t.Fatal(err)
			}
		}
		d.crowd(ctx, 1, strict, scene(i, turns), scene(i, lead))
	}
	all := func(process int) func() bool {
		return func() bool {
			has := true
			for i := range harness.Drivers[:2] {
				has = has && d.times(process, scene(i, turns)) > 9 && d.times(process, scene(i, lead)) > 0
			}
			return has
		}
	}
	harness.Eventually(t, "all had their turns at the old primary", all(1))
	stopped := history.Now() // no earlier does b confirm no more
	if p.cut {
		b.Cut()
	}
	time.Sleep(p.after)
	var waiting sync.WaitGroup
	for i, driver := range harness.Drivers[:2] {
		strict, free := proofLocker(t, driver, b, locker.WithStandby()), proofLocker(t, driver, b)
		for kind, l := range map[int]*locker.Locker{proven: strict, noGrace: free, plain: free} {
			key := scene(i, kind)
			waiting.Go(func() {
				for end := time.Now().Add(2 * harness.Patience); ; time.Sleep(20 * time.Millisecond) {
					_, err := d.hold(ctx, 2, key, func() (advisory.Lock, error) { return l.Lock(ctx, key) })
					if err == nil {
						return
					}
					if time.Now().After(end) {
						t.Errorf("%s, %v: %v", driver.Name, key, err)
						return
					}
				}
			})
		}
		d.crowd(ctx, 2, strict, scene(i, turns), scene(i, lead))
	}
	b.Promote()
	promoted := history.Now()
	c.Follow(b) // and confirms what that commits
	t.Logf("%v: the new primary has a standby %.2f s after the promotion", p, history.Now().Since(promoted).Seconds())
	waiting.Wait()
	harness.Eventually(t, "all had their turns at the new primary", all(2))
	stop()
	d.done.Wait()
	for _, err := range d.wrong {
		t.Error(err)
	}
	for i, driver := range harness.Drivers[:2] {
		for _, kind := range []int{turns, lead} {
			holds := d.of(scene(i, kind))
			t.Logf("%s, %v: %s had the key %d times at the old primary, %d times at the new one", driver.Name, p, holds[0].How, d.times(1, scene(i, kind)), d.times(2, scene(i, kind)))
			for _, err := range history.Check(holds, nil) {
				t.Errorf("%s: %v", driver.Name, err)
			}
		}
		for kind, what := range map[int]string{proven: "with the proof", noGrace: "without a grace", plain: "without a proof"} {
			holds := d.of(scene(i, kind))
			if len(holds) != 2 {
				t.Fatalf("%s, %s: %d holds", driver.Name, what, len(holds))
			}
			gap, overlaps := holds[1].Got.Since(holds[0].Alive), len(history.Check(holds, nil)) > 0
			t.Logf("%s, %v, %s: %.2f s between the old holder's end and the new one's beginning, which was %.2f s after the promotion", driver.Name, p, what, gap.Seconds(), holds[1].Got.Since(promoted).Seconds())
			switch {
			case kind == proven && (overlaps || gap <= 0):
				t.Errorf("%s: both held the key for %v (this machine was late by up to %v)", driver.Name, -gap, lag.Get())
			case kind == proven && holds[0].Told == 0:
				t.Errorf("%s: the old holder never stopped", driver.Name)
			case kind == noGrace && holds[1].Got.Since(stopped) < proofTimes.Deadline-proofTimes.Beat && !overlaps: // unless the promotion was slow
				t.Errorf("%s: without a grace the holders do not overlap: what is the grace for?", driver.Name)
			case kind == plain && !overlaps:
				t.Errorf("%s: without a proof the holders do not overlap: what is the proof for?", driver.Name)
			}
		}
	}
}

// lostUnconfirmed waits until the lock is lost for want of a confirmation, and returns when.
func lostUnconfirmed(t *testing.T, lock advisory.Lock) time.Time {
	t.Helper()
	select {
	case <-lock.Context().Done():
	case <-time.After(harness.Patience):
		t.Fatal("the lock is not lost")
	}
	at := time.Now()
	if cause := context.Cause(lock.Context()); !errors.Is(cause, advisory.ErrLost) || !errors.Is(cause, advisory.ErrUnconfirmed) {
		t.Errorf("the lock's Context ends with %v", cause)
	}
	lock.Unlock()
	return at
}

// held takes key with a Locker of its own that requires a standby.
func held(t *testing.T, d harness.Driver, n *harness.Node, key advisory.Key, opts ...locker.Option) (*locker.Locker, advisory.Lock) {
	t.Helper()
	l := proofLocker(t, d, n, append(opts, locker.WithStandby())...)
	lock, ok := harness.LockerTry(t, l, key)
	if !ok {
		t.Fatal("the key is taken")
	}
	return l, lock
}

// blockedBeat waits until a beat of the Locker of that name waits for a standby, and returns its pid and
// when it began.
func blockedBeat(t *testing.T, n *harness.Node, name string) (pid int, since time.Time) {
	t.Helper()
	harness.Eventually(t, "a beat waits for the standby", func() bool {
		return n.Watch.QueryRow("SELECT pid, query_start FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = $1", name).Scan(&pid, &since) == nil
	})
	return pid, since
}

// A meeting is where the tests of both drivers meet, who have their servers in common.
type meeting struct {
	mu    sync.Mutex
	count int
	met   chan struct{}
}

// meet waits for the other one. The last that comes does what is to be done once.
func (m *meeting) meet(t *testing.T, do func()) {
	t.Helper()
	m.mu.Lock()
	if m.count%2 == 0 {
		m.met = make(chan struct{})
	}
	m.count++
	met, last := m.met, m.count%2 == 0
	m.mu.Unlock()
	if last {
		defer close(met)
		do()
		return
	}
	select {
	case <-met:
	case <-time.After(2 * harness.Patience):
		t.Fatal("the other driver's test has failed")
	}
}

// One primary with one standby, to which things happen in turn.
func TestProofOfTheStandby(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	r := harness.NewReplication(t, 1)
	a, b := r.Primary, r.Standbys[0]
	lag := harness.WatchLag(t)
	var both meeting
	each := func(name string, scene func(t *testing.T, d harness.Driver, key advisory.Key)) {
		harness.AtOnce(t, func(all *harness.Together) {
			for i, d := range harness.Drivers[:2] {
				all.Start(name+"/"+d.Name, func(t *testing.T) { scene(t, d, advisory.Int64(int64(i))) })
			}
		})
	}

	each("names are empty", func(t *testing.T, d harness.Driver, key advisory.Key) {
		l := proofLocker(t, d, a, locker.WithStandby())
		for what, err := range map[string]error{"Ping": l.Ping(t.Context()), "TryLock": harness.Third(l.TryLock(t.Context(), key))} {
			unsafe, ok := errors.AsType[*advisory.UnsafeServerError](err)
			if !ok || unsafe.Reason != advisory.NoStandby {
				t.Errorf("%s: %v", what, err)
			}
		}
	})

	a.Synchronous("b")
	a.Exec("ALTER ROLE postgres SET synchronous_commit = off") // the witness's own setting counts
	each("cut and healed in time", func(t *testing.T, d harness.Driver, key advisory.Key) {
		// With a deadline of 9.75 s, so that a slow machine is in time, too.
		_, lock := held(t, d, a, key, locker.WithFailover(failover.Default), locker.WithApplicationName("healed "+d.Name))
		both.meet(t, b.Cut)
		blockedBeat(t, a, "healed "+d.Name)
		time.Sleep(time.Second)
		both.meet(t, b.Heal)
		harness.Eventually(t, "no beat waits", func() bool {
			return !harness.Ask[bool](t, a.Watch, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = $1)", "healed "+d.Name)
		})
		if err := lock.Context().Err(); err != nil {
			t.Error(context.Cause(lock.Context()))
		}
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
	})
	b.CatchUp(a)

	// A beat that is cancelled is answered, and counts as one confirmation. One that is terminated does
	// not. Neither makes a holder go on for longer than D after it was sent.
	each("a beat is cancelled or terminated", func(t *testing.T, d harness.Driver, key advisory.Key) {
		k, _ := key.Int64()
		_, cancelled := held(t, d, a, advisory.Int64(10+k), locker.WithApplicationName("cancelled "+d.Name))
		_, terminated := held(t, d, a, advisory.Int64(20+k), locker.WithApplicationName("terminated "+d.Name))
		both.meet(t, b.Cut)
		pid, sent := blockedBeat(t, a, "cancelled "+d.Name)
		pid2, sent2 := blockedBeat(t, a, "terminated "+d.Name)
		if !harness.Ask[bool](t, a.Watch, "SELECT pg_cancel_backend($1)", pid) || !harness.Ask[bool](t, a.Watch, "SELECT pg_terminate_backend($1)", pid2) {
			t.Error("the beats were gone")
		}
		at2, at := lostUnconfirmed(t, terminated), lostUnconfirmed(t, cancelled)
		t.Logf("the locks ended %.2f s after the beat that was cancelled, %.2f s after the one that was terminated", at.Sub(sent).Seconds(), at2.Sub(sent2).Seconds())
		if after := at.Sub(sent); after < proofTimes.Deadline-proofTimes.Beat/2-lag.Get() || after > proofTimes.Deadline+lag.Get() {
			t.Errorf("cancelled: the lock ended %v after it was sent (this machine was late by up to %v)", after, lag.Get())
		}
		if after := at2.Sub(sent2); after > proofTimes.Deadline-proofTimes.Beat/2+lag.Get() {
			t.Errorf("terminated: the lock ended %v after it was sent (this machine was late by up to %v)", after, lag.Get())
		}
		// While the replication is cut, none of the beats that were given up stays on the server.
		harness.Eventually(t, "no beat waits any more", func() bool {
			return !harness.Ask[bool](t, a.Watch, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name IN ($1, $2))", "cancelled "+d.Name, "terminated "+d.Name)
		})
		both.meet(t, func() {})
	})
	b.Heal()
	b.CatchUp(a)

	// The names are taken away while a beat waits, which is answered then.
	each("names become empty", func(t *testing.T, d harness.Driver, key advisory.Key) {
		_, lock := held(t, d, a, key, locker.WithApplicationName("reloaded "+d.Name))
		both.meet(t, b.Cut)
		_, sent := blockedBeat(t, a, "reloaded "+d.Name)
		both.meet(t, func() { a.Synchronous("") })
		at := lostUnconfirmed(t, lock)
		t.Logf("the lock ended %.2f s after the beat that waited as the names became empty", at.Sub(sent).Seconds())
		if after := at.Sub(sent); after > proofTimes.Deadline+lag.Get() {
			t.Errorf("the lock ended %v after the beat was sent (this machine was late by up to %v)", after, lag.Get())
		}
	})
	b.Heal()
	b.CatchUp(a)
	a.Synchronous("b")

	// A process is killed while its beat waits: the beat stays, and the lock does not.
	each("killed while a beat waits", func(t *testing.T, d harness.Driver, key advisory.Key) {
		holder := harness.Order{Job: "hold with a standby", Driver: d.Sql, URL: a.URL(), Args: []string{d.Name, key.String(), proofTimes.Failover.String()}}.Start(t)
		holder.Says("held", harness.Patience)
		both.meet(t, b.Cut)
		pid, _ := blockedBeat(t, a, "killed "+d.Name)
		killed := time.Now()
		holder.Kill()
		plain := proofLocker(t, d, a)
		lock, err := plain.Lock(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		free := time.Since(killed)
		waits := harness.Ask[bool](t, a.Watch, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid = $1)", pid)
		t.Logf("free %.2f s after the kill; the beat waits still: %t", free.Seconds(), waits)
		if free > proofTimes.Failover+lag.Get() {
			t.Errorf("free only after %v", free)
		}
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
	})
	b.Heal()
	b.CatchUp(a)

	// No standby is left: the locks are lost, and none is given out before one is back.
	var lockers [2]*locker.Locker
	var locks [2]advisory.Lock
	for i, d := range harness.Drivers[:2] {
		lockers[i], locks[i] = held(t, d, a, advisory.Int64(int64(i)))
	}
	if err := b.Stop("fast"); err != nil {
		t.Fatal(err)
	}
	each("no standby is left", func(t *testing.T, d harness.Driver, key advisory.Key) {
		k, _ := key.Int64()
		lostUnconfirmed(t, locks[k])
		if _, ok, err := lockers[k].TryLock(t.Context(), key); ok || !errors.Is(err, advisory.ErrUnconfirmed) {
			t.Errorf("TryLock: %v, %v", ok, err)
		}
	})
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	each("a standby is back", func(t *testing.T, d harness.Driver, key advisory.Key) {
		k, _ := key.Int64()
		harness.Eventually(t, "the key can be locked", func() bool {
			lock, ok, err := lockers[k].TryLock(t.Context(), key)
			if err == nil && ok {
				lock.Unlock()
			}
			return err == nil && ok
		})
	})
}

func init() {
	harness.Jobs["hold with a standby"] = func(o harness.Order) error {
		db, err := o.Open()
		if err != nil {
			return err
		}
		key, err := advisory.ParseKey(o.Args[1])
		if err != nil {
			return err
		}
		within, err := time.ParseDuration(o.Args[2])
		if err != nil {
			return err
		}
		l := locker.New(db, locker.WithStandby(), locker.WithFencing(), locker.WithFailover(within), locker.WithApplicationName("killed "+o.Args[0]))
		lock, err := l.Lock(context.Background(), key)
		if err != nil {
			return err
		}
		fmt.Println("held", lock.Token())
		<-harness.Orphaned()
		return nil
	}
}

// With ANY 1 of two standbys the one that is not promoted confirms: the proof proves nothing. With ANY 2
// it does. docs/failover.md says so; if this changes, so has PostgreSQL.
func TestConfirmationOfAnotherStandby(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	r := harness.NewReplication(t, 2)
	a, b := r.Primary, r.Standbys[0]
	a.Synchronous("ANY 2 (b, c)")
	var any2, any1 [2]advisory.Lock
	for i, d := range harness.Drivers[:2] {
		_, any2[i] = held(t, d, a, advisory.Int64(int64(i)))
	}
	b.Cut()
	for i := range any2 {
		lostUnconfirmed(t, any2[i])
	}
	b.Heal()
	b.CatchUp(a)
	a.Synchronous("ANY 1 (b, c)")
	for i, d := range harness.Drivers[:2] {
		_, any1[i] = held(t, d, a, advisory.Int64(int64(i)))
	}
	b.Cut()
	b.Synchronous("*")
	b.Promote()
	r.AddStandby(b)
	for i, d := range harness.Drivers[:2] {
		l := proofLocker(t, d, b, locker.WithStandby())
		harness.Eventually(t, "the promoted server gives the key out", func() bool {
			lock, ok, err := l.TryLock(t.Context(), advisory.Int64(int64(i)))
			if ok {
				lock.Unlock()
			}
			return ok && err == nil
		})
		if err := context.Cause(any1[i].Context()); err != nil {
			t.Errorf("%s: the old holder has stopped: %v", d.Name, err)
		}
	}
}
