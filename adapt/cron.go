package adapt

import (
	"context"
	"errors"
	"log/slog"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// Cron returns a JobWrapper of github.com/robfig/cron/v3, whose Job is the type argument: a job
// that it wraps runs under the lock of key, on one node at a time.
//
//	chain := cron.NewChain(adapt.Cron[cron.Job](l, advisory.Name("billing", "nightly"), nil))
//	c.AddJob("0 3 * * *", chain.Then(job))
//
// A run is skipped, without an error, if the key is not free at once, or within
// [advisory.MaxWait]. So is a run that is due while the last one goes on. [advisory.WithObserver]
// reports skips. onError gets every other error: that the lock could not be taken, so that the
// job did not run, or that it was lost while the job ran, [advisory.ErrLost]. A nil onError logs
// it to slog.Default. A panic of the job goes on after the lock is released: put cron.Recover
// before this wrapper.
//
// cron has no names for jobs, so each key needs a chain: in cron.WithChain all jobs of the
// scheduler would share one lock.
//
// Nodes do not start a job at the same moment. A job that is shorter than the difference of their
// clocks runs once on each, unless opts have a locker.HoldAtLeast of more than that difference
// and less than the job's interval. Run then takes at least that long.
//
// A Job has no ctx, so it cannot be stopped when its lock is lost. A job that must stop takes the
// lock itself, by [Wrap].
//
// Cron panics if l is nil.
func Cron[J interface{ Run() }](l advisory.Locker, key advisory.Key, onError func(error), opts ...advisory.LockerOption) func(J) J {
	mustHave(l, "Cron")
	as[J](cronJob(nil), "Cron")
	if onError == nil {
		onError = func(err error) { slog.Error("a cron job ran without its lock, or not at all", "err", err) }
	}
	return func(job J) J {
		run := Wrap(l, key, func(context.Context) error {
			job.Run()
			return nil
		}, opts...)
		return as[J](cronJob(func() {
			if err := run(context.Background()); err != nil && !errors.Is(err, advisory.ErrNotAcquired) {
				onError(err)
			}
		}), "Cron")
	}
}

type cronJob func()

func (f cronJob) Run() { f() }
