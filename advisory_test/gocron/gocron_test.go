// Package gocron_test runs gocron's schedulers, several of them as a fleet of nodes has, on our
// locks.
//
// go.mod requires gocron's current version, older.mod an older one. It is a module of its own, so
// that the root does not require gocron.
package gocron_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	_ "github.com/lib/pq"

	"github.com/pgadvisory/pgadvisory/adapt"
	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var (
	_ gocron.Locker  = (*adapt.GocronLocker[gocron.Lock])(nil)
	_ gocron.Elector = (*adapt.Elector)(nil)
	_ adapt.Leader   = (*locker.Locker)(nil)
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
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		l.Shutdown(ended) // Close would wait for HoldAtLeast
	})
	return l
}

func newScheduler(t *testing.T, options ...gocron.SchedulerOption) gocron.Scheduler {
	t.Helper()
	// Shutdown of gocron 2.12 takes all of this time, also when no job runs.
	options = append([]gocron.SchedulerOption{gocron.WithStopTimeout(time.Second)}, options...)
	s, err := gocron.NewScheduler(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Shutdown() })
	return s
}

func newJob(t *testing.T, s gocron.Scheduler, when gocron.JobDefinition, task gocron.Task, options ...gocron.JobOption) gocron.Job {
	t.Helper()
	j, err := s.NewJob(when, task, options...)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

var atOnce = gocron.OneTimeJob(gocron.OneTimeJobStartImmediately())

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(enough); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came to pass that %s", what)
		}
	}
}

func receive[T any](t *testing.T, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(enough):
		t.Fatalf("it never came to pass that %s", what)
	}
	return v
}

// Five nodes have the same job at the same moment. Those that do not get the lock skip it, and
// AfterLockError has the reason.
func TestJobRunsOnOneNode(t *testing.T) {
	url := pgtest.URL(t)
	var runs, skips atomic.Int64
	release := make(chan bool)
	for range 5 {
		s := newScheduler(t, gocron.WithDistributedLocker(adapt.Gocron[gocron.Lock](newLocker(t, url))))
		newJob(t, s, atOnce, gocron.NewTask(func() {
			runs.Add(1)
			<-release
		}), gocron.WithName("report"), gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, job string, err error) {
			if job != "report" || !errors.Is(err, advisory.ErrNotAcquired) {
				t.Errorf("%s: %v", job, err)
			}
			skips.Add(1)
		})))
		s.Start()
	}
	eventually(t, "the others skip the job", func() bool { return skips.Load() == 4 })
	eventually(t, "one runs it", func() bool { return runs.Load() == 1 })
	close(release)
}

// While runs of several nodes compete again and again, no two overlap.
func TestRunsDoNotOverlap(t *testing.T) {
	url := pgtest.URL(t)
	var running, overlaps, runs atomic.Int64
	for range 3 {
		s := newScheduler(t)
		// Of the job, not of the scheduler: the other way in which gocron takes a Locker.
		newJob(t, s, gocron.DurationJob(10*time.Millisecond), gocron.NewTask(func() {
			if running.Add(1) > 1 {
				overlaps.Add(1)
			}
			time.Sleep(3 * time.Millisecond)
			running.Add(-1)
			runs.Add(1)
		}), gocron.WithName("report"), gocron.WithDistributedJobLocker(adapt.Gocron[gocron.Lock](newLocker(t, url))))
		s.Start()
	}
	eventually(t, "twenty runs have ended", func() bool { return runs.Load() >= 20 })
	if n := overlaps.Load(); n != 0 {
		t.Errorf("%d runs overlapped", n)
	}
}

// A scheduler that gives up on a job does not release its lock: the job goes on, and no other
// node may run it.
func TestShutdownDuringAJobKeepsItsLockUntilTheJobEnds(t *testing.T) {
	url := pgtest.URL(t)
	started, release := make(chan bool), make(chan bool)
	end := sync.OnceFunc(func() { close(release) })
	defer end()
	s := newScheduler(t,
		gocron.WithDistributedLocker(adapt.Gocron[gocron.Lock](newLocker(t, url))),
		gocron.WithStopTimeout(50*time.Millisecond))
	newJob(t, s, atOnce, gocron.NewTask(func() {
		started <- true
		<-release
	}), gocron.WithName("report"))
	s.Start()
	receive(t, "the job starts", started)
	if err := s.Shutdown(); err == nil {
		t.Error("the scheduler has stopped, although its job runs")
	}
	other := newLocker(t, url)
	if _, free, err := other.TryLock(t.Context(), advisory.Name("gocron", "report")); free || err != nil {
		t.Errorf("while the job runs, its lock is free: %v, %v", free, err)
	}
	end()
	ctx, cancel := context.WithTimeout(t.Context(), enough)
	defer cancel()
	if err := other.Do(ctx, advisory.Name("gocron", "report"), func(context.Context) error { return nil }); err != nil {
		t.Errorf("after the job: %v", err)
	}
}

// Shutdown ends the ctx that gocron passes to Unlock, which the release does not depend on.
func TestShutdownThatWaitsForTheJobReleasesItsLock(t *testing.T) {
	url := pgtest.URL(t)
	started := make(chan bool)
	l := newLocker(t, url)
	s := newScheduler(t, gocron.WithDistributedLocker(adapt.Gocron[gocron.Lock](l)))
	stopping := make(chan bool)
	newJob(t, s, atOnce, gocron.NewTask(func() {
		started <- true
		<-stopping
	}), gocron.WithName("report"))
	s.Start()
	receive(t, "the job starts", started)
	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown() }()
	close(stopping)
	receive(t, "Shutdown returns", stopped) // an error, if the job took too long
	eventually(t, "the lock is free", func() bool { return !l.Holds(advisory.Name("gocron", "report")) })
}

func TestPanicOfAJobReleasesItsLock(t *testing.T) {
	l := newLocker(t, pgtest.URL(t))
	s := newScheduler(t, gocron.WithDistributedLocker(adapt.Gocron[gocron.Lock](l)))
	recovered := make(chan any, 1)
	newJob(t, s, atOnce, gocron.NewTask(func() { panic("of the job") }), gocron.WithName("report"),
		gocron.WithEventListeners(gocron.AfterJobRunsWithPanic(func(_ uuid.UUID, _ string, with any) { recovered <- with })))
	s.Start()
	if with := receive(t, "the job panics", recovered); with != "of the job" {
		t.Errorf("it panics with %v", with)
	}
	eventually(t, "the lock is free", func() bool { return !l.Holds(advisory.Name("gocron", "report")) })
}

// Nodes whose clocks differ run a short job one after the other, unless the lock is held for
// longer than the difference.
func TestHoldAtLeastCoversTheSkewOfClocks(t *testing.T) {
	url := pgtest.URL(t)
	ran := make(chan string, 2)
	skipped := make(chan error, 2)
	node := func(name string) {
		s := newScheduler(t, gocron.WithDistributedLocker(adapt.Gocron[gocron.Lock](newLocker(t, url), locker.HoldAtLeast(enough))))
		newJob(t, s, atOnce, gocron.NewTask(func() { ran <- name }), gocron.WithName("report"),
			gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { skipped <- err })))
		s.Start()
	}
	node("quick")
	receive(t, "the job runs", ran)
	node("late")
	if err := receive(t, "the late node skips the job", skipped); !errors.Is(err, advisory.ErrNotAcquired) {
		t.Error(err)
	}
}

// A job that takes the lock itself ends with it.
func TestWrappedJobEndsWhenItsLockIsLost(t *testing.T) {
	url := pgtest.URL(t)
	l := newLocker(t, url)
	s := newScheduler(t)
	started, failed := make(chan bool, 1), make(chan error, 1)
	job := adapt.Wrap(l, advisory.Name("billing", "report"), func(ctx context.Context) error {
		started <- true
		<-ctx.Done()
		return context.Cause(ctx)
	})
	newJob(t, s, atOnce, gocron.NewTask(job, context.Background()), gocron.WithName("report"),
		gocron.WithEventListeners(gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { failed <- err })))
	s.Start()
	receive(t, "the job starts", started)
	terminateHolders(t, url)
	if err := receive(t, "the job ends", failed); !errors.Is(err, advisory.ErrLost) {
		t.Error(err)
	}
}

func terminateHolders(t *testing.T, url string) {
	t.Helper()
	db, err := sql.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); err != nil {
		t.Fatal(err)
	}
}

// Of three nodes with an Elector one runs the jobs; when it is gone, another one does.
func TestOnlyTheLeaderRunsJobs(t *testing.T) {
	url := pgtest.URL(t)
	key := advisory.Name("billing", "scheduler")
	type node struct {
		elector   *adapt.Elector
		scheduler gocron.Scheduler
		runs      atomic.Int64
	}
	nodes := make([]*node, 3)
	for i := range nodes {
		n := &node{elector: adapt.GocronElector(newLocker(t, url), key)}
		t.Cleanup(func() { n.elector.Close() })
		n.scheduler = newScheduler(t, gocron.WithDistributedElector(n.elector))
		newJob(t, n.scheduler, gocron.DurationJob(10*time.Millisecond), gocron.NewTask(func() { n.runs.Add(1) }), gocron.WithName(fmt.Sprint("job of node ", i)))
		n.scheduler.Start()
		nodes[i] = n
	}
	leader := func(but int) (found int) {
		eventually(t, "a node runs jobs", func() bool {
			for i, n := range nodes {
				if i != but && n.runs.Load() >= 5 {
					found = i
					return true
				}
			}
			return false
		})
		for i, n := range nodes {
			if i != found && i != but && n.runs.Load() != 0 {
				t.Errorf("node %d ran jobs beside node %d", i, found)
			}
		}
		return found
	}
	first := leader(-1)
	nodes[first].scheduler.Shutdown() // an error, if a job took too long
	if err := nodes[first].elector.Close(); err != nil {
		t.Error(err)
	}
	leader(first)
}

// lose ends the leader's session until another has the lock. The leader campaigns again at once, and may
// be there before the other's next statement.
func lose(t *testing.T, url string, leads func() bool, other <-chan advisory.Lock) advisory.Lock {
	t.Helper()
	for range 20 {
		terminateHolders(t, url)
		eventually(t, "the node no longer leads", func() bool { return !leads() })
		for {
			select {
			case lock := <-other:
				return lock
			case <-time.After(50 * time.Millisecond):
			}
			if leads() {
				break
			}
		}
	}
	t.Fatal("the other never has the lock")
	return nil
}

func TestLossOfTheLeadershipIsSeen(t *testing.T) {
	url := pgtest.URL(t)
	e := adapt.GocronElector(newLocker(t, url), advisory.Name("billing", "scheduler"))
	defer e.Close()
	leads := func() bool { return e.IsLeader(t.Context()) == nil }
	eventually(t, "the node leads", leads)

	next := newLocker(t, url)
	got := make(chan advisory.Lock, 1)
	go func() {
		lock, err := next.Lock(t.Context(), advisory.Name("billing", "scheduler"))
		if err != nil {
			t.Error(err)
		}
		got <- lock
	}()
	eventually(t, "the other waits", func() bool { return next.Stats().Waiting == 1 })
	lock := lose(t, url, leads, got)
	if lock.Context().Err() == nil && leads() {
		t.Error("both lead")
	}
	lock.Unlock()
	eventually(t, "the node leads again", leads)
}
