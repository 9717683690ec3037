package adapt_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/adapt"
	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory/locktest"
)

// What gocron declares. A program imports github.com/go-co-op/gocron/v2 instead.
type (
	gocronLock   interface{ Unlock(context.Context) error }
	gocronLocker interface {
		Lock(ctx context.Context, key string) (gocronLock, error)
	}
	gocronElector interface{ IsLeader(context.Context) error }
)

// What robfig/cron declares. A program imports github.com/robfig/cron/v3 instead.
type (
	cronJob        interface{ Run() }
	cronFunc       func()
	cronJobWrapper func(cronJob) cronJob
)

func (f cronFunc) Run() { f() }

// A program has l of locker.New(db), gives the Locker to gocron.WithDistributedLocker, and
// gocron calls it.
func ExampleGocron() {
	ctx, l := context.Background(), locktest.New()
	var locker gocronLocker = adapt.Gocron[gocronLock](l)

	lock, err := locker.Lock(ctx, "nightly report")
	fmt.Println("one node runs the job:", err)
	_, err = locker.Lock(ctx, "nightly report")
	fmt.Println("another skips it:", errors.Is(err, advisory.ErrNotAcquired))
	fmt.Println("the job has ended:", lock.Unlock(ctx))
	// Output:
	// one node runs the job: <nil>
	// another skips it: true
	// the job has ended: <nil>
}

func ExampleGocronLocker_Keys() {
	l := locktest.New()
	var locker gocronLocker = adapt.Gocron[gocronLock](l).Keys(func(job string) advisory.Key {
		return advisory.Name("billing", job)
	})
	_, err := locker.Lock(context.Background(), "report")
	fmt.Println(err, l.Holds(advisory.Name("billing", "report")))
	// Output: <nil> true
}

// A program has l of locker.New(db), which has Lead, and gives the Elector to
// gocron.WithDistributedElector.
func ExampleGocronElector() {
	ctx, l := context.Background(), leader{locktest.New()}
	elector := adapt.GocronElector(l, advisory.Name("billing", "scheduler"))
	defer elector.Close()

	var _ gocronElector = elector
	for elector.IsLeader(ctx) != nil { // runs that are due now are skipped
		time.Sleep(time.Millisecond)
	}
	fmt.Println("this node runs the jobs")
	// Output: this node runs the jobs
}

func ExampleCron() {
	l, key := locktest.New(), advisory.Name("billing", "nightly")
	var wrapper cronJobWrapper = adapt.Cron[cronJob](l, key, nil)
	job := wrapper(cronFunc(func() { fmt.Println("the job runs") }))

	release := l.Occupy(key) // another node runs it
	job.Run()
	release()
	job.Run()
	// Output: the job runs
}

func ExampleWrap() {
	ctx, l, key := context.Background(), locktest.New(), advisory.Name("billing", "nightly")
	job := adapt.Wrap(l, key, func(ctx context.Context) error {
		fmt.Println("the job runs")
		return nil
	})
	release := l.Occupy(key) // another node runs it
	fmt.Println("skipped:", errors.Is(job(ctx), advisory.ErrNotAcquired))
	release()
	fmt.Println(job(ctx))
	// Output:
	// skipped: true
	// the job runs
	// <nil>
}
