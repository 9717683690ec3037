package gocron_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/pgadvisory/pgadvisory/adapt"
	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// The recipes of docs/recipes.md: a lock for each job, and one node that runs all jobs.

func schedulerWithLocks(l *locker.Locker) (gocron.Scheduler, error) {
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(
		adapt.Gocron[gocron.Lock](l, locker.HoldAtLeast(10*time.Second))))
	return s, err
}

func runOnTheLeader(l *locker.Locker, key advisory.Key, run func(gocron.Scheduler) error) error {
	elector := adapt.GocronElector(l, key)
	defer elector.Close()
	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		return err
	}
	return run(s)
}

func TestRecipes(t *testing.T) {
	l := newLocker(t, pgtest.URL(t))
	ranOn := func(s gocron.Scheduler) {
		t.Helper()
		var runs atomic.Int32
		newJob(t, s, gocron.DurationJob(20*time.Millisecond), gocron.NewTask(func() { runs.Add(1) }), gocron.WithName("nightly"))
		s.Start()
		eventually(t, "the job ran", func() bool { return runs.Load() > 0 })
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	}
	s, err := schedulerWithLocks(l)
	if err != nil {
		t.Fatal(err)
	}
	ranOn(s)
	err = runOnTheLeader(l, advisory.Name("billing", "leader"), func(s gocron.Scheduler) error { ranOn(s); return nil })
	if err != nil {
		t.Error(err)
	}
}
