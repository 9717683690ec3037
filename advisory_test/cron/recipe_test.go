package cron_test

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/pgadvisory/pgadvisory/adapt"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// newCron is the recipe of docs/recipes.md.
func newCron(l *locker.Locker, nightly func(), onError func(error)) *cron.Cron {
	c := cron.New()
	chain := cron.NewChain(adapt.Cron[cron.Job](l, key, onError, locker.HoldAtLeast(10*time.Second)))
	c.AddJob("0 3 * * *", chain.Then(cron.FuncJob(nightly))) // func nightly()
	return c
}

func TestRecipe(t *testing.T) {
	l := newLocker(t, pgtest.URL(t))
	ran := 0
	c := newCron(l, func() { ran++ }, func(err error) { t.Error(err) })
	entries := c.Entries()
	if len(entries) != 1 {
		t.Fatalf("%d entries", len(entries))
	}
	done := make(chan struct{})
	go func() { defer close(done); entries[0].WrappedJob.Run() }()
	eventually(t, "the job runs under the lock", func() bool { return l.Holds(key) })
	entries[0].WrappedJob.Run() // within the ten seconds: skipped
	l.Close()
	<-done
	if ran != 1 {
		t.Errorf("it ran %d times", ran)
	}
}
