// Package cron_test runs robfig/cron's schedulers, several of them as a fleet of nodes has, on our
// locks.
//
// go.mod requires cron's current version, older.mod an older one. It is a module of its own, so
// that the root does not require cron.
package cron_test

import (
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/lib/pq"
	"github.com/robfig/cron/v3"

	"github.com/pgadvisory/pgadvisory/adapt"
	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory/locktest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var (
	key = advisory.Name("billing", "nightly")

	_ cron.JobWrapper = adapt.Cron[cron.Job](locktest.New(), key, nil)
)

// enough is more than anything here takes on a busy machine.
const enough = 30 * time.Second

func newLocker(t *testing.T, url string) *locker.Locker {
	t.Helper()
	db, err := sql.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	l := locker.New(db)
	t.Cleanup(func() { l.Close() })
	return l
}

// often is a schedule. cron's own have a second at least.
type often struct{ every time.Duration }

func (o often) Next(now time.Time) time.Time { return now.Add(o.every) }

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(enough); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came to pass that %s", what)
		}
	}
}

func TestRunsDoNotOverlap(t *testing.T) {
	url := pgtest.URL(t)
	var running, overlaps, runs, ticks atomic.Int64
	count := func(next cron.Job) cron.Job {
		return cron.FuncJob(func() {
			ticks.Add(1)
			next.Run()
		})
	}
	for range 3 {
		chain := cron.NewChain(count, adapt.Cron[cron.Job](newLocker(t, url), key, func(err error) { t.Error(err) }))
		c := cron.New()
		// Each run lasts longer than the schedule's interval, so the runs of a node compete too.
		c.Schedule(often{10 * time.Millisecond}, chain.Then(cron.FuncJob(func() {
			if running.Add(1) > 1 {
				overlaps.Add(1)
			}
			time.Sleep(25 * time.Millisecond)
			running.Add(-1)
			runs.Add(1)
		})))
		c.Start()
		t.Cleanup(func() { <-c.Stop().Done() })
	}
	eventually(t, "twenty runs have ended, and others were skipped", func() bool { return runs.Load() >= 20 && ticks.Load() > 2*runs.Load() })
	if n := overlaps.Load(); n != 0 {
		t.Errorf("%d runs overlapped", n)
	}
}

// cron's Stop does not wait for jobs. The lock of one that runs is held until it ends.
func TestStopDuringAJobKeepsItsLockUntilTheJobEnds(t *testing.T) {
	url := pgtest.URL(t)
	started, release := make(chan bool, 1), make(chan bool)
	c := cron.New(cron.WithChain(adapt.Cron[cron.Job](newLocker(t, url), key, func(err error) { t.Error(err) })))
	c.Schedule(often{time.Millisecond}, cron.FuncJob(func() {
		select {
		case started <- true:
		default:
		}
		<-release
	}))
	c.Start()
	<-started
	stopped := c.Stop()
	other := newLocker(t, url)
	if _, free, err := other.TryLock(t.Context(), key); free || err != nil {
		t.Errorf("while the job runs, its lock is free: %v, %v", free, err)
	}
	close(release)
	select {
	case <-stopped.Done():
	case <-time.After(enough):
		t.Fatal("the job does not end")
	}
	// A run that was due before Stop may have begun after the release.
	eventually(t, "the lock is free", func() bool {
		lock, free, err := other.TryLock(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if free {
			lock.Unlock()
		}
		return free
	})
}

type recorder struct{ panics chan error }

func (recorder) Info(string, ...any) {}

func (r recorder) Error(err error, _ string, _ ...any) { r.panics <- err }

func TestPanicReachesCronsRecoverAfterTheRelease(t *testing.T) {
	l := newLocker(t, pgtest.URL(t))
	r := recorder{make(chan error, 1)}
	cron.NewChain(cron.Recover(r), adapt.Cron[cron.Job](l, key, func(err error) { t.Error(err) })).
		Then(cron.FuncJob(func() { panic(fmt.Errorf("of the job")) })).Run()
	select {
	case err := <-r.panics:
		if err.Error() != "of the job" || l.Holds(key) {
			t.Errorf("%v; the lock is held: %v", err, l.Holds(key))
		}
	default:
		t.Error("Recover saw no panic")
	}
}
