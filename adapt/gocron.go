package adapt

import (
	"context"
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// A GocronLocker is a Locker in the shape of gocron's: its Lock returns gocron's own type L.
type GocronLocker[L interface{ Unlock(context.Context) error }] struct {
	l    advisory.Locker
	key  func(job string) advisory.Key
	opts []advisory.LockerOption
}

// Gocron returns l as a Locker of github.com/go-co-op/gocron/v2, whose Lock is the type argument:
//
//	gocron.WithDistributedLocker(adapt.Gocron[gocron.Lock](l))
//
// A job then runs on the node that gets the lock of its name, and is skipped on the others. One
// try decides, unless opts have an [advisory.MaxWait]. A run that is due while the last one goes
// on is skipped too, also on the same node.
//
// The key of a job is advisory.Name("gocron", name); see [GocronLocker.Keys]. A job without a name
// has that of its function, such as "main.main.func1": give jobs names by gocron.WithName.
//
// Nodes do not start a job at the same moment. A job that is shorter than the difference of their
// clocks runs once on each, unless opts have a locker.HoldAtLeast of more than that difference
// and less than the job's interval.
//
// gocron cannot stop a job whose lock is lost: it gives the job a ctx of its own, and discards the
// error of Unlock. A loss is an event of [advisory.WithObserver] only. A job that must stop takes
// the lock itself: gocron.NewTask(adapt.Wrap(l, key, fn)).
//
// Gocron panics if l is nil.
func Gocron[L interface{ Unlock(context.Context) error }](l advisory.Locker, opts ...advisory.LockerOption) *GocronLocker[L] {
	mustHave(l, "Gocron")
	as[L](gocronLock{}, "Gocron")
	key := func(job string) advisory.Key { return advisory.Name("gocron", job) }
	return &GocronLocker[L]{l: l, key: key, opts: orOneTry(opts)}
}

// Keys returns a GocronLocker that locks the key which of returns for the name of a job. Programs
// that share a database need it, where they have jobs of the same name:
//
//	adapt.Gocron[gocron.Lock](l).Keys(func(job string) advisory.Key { return advisory.Name("billing", job) })
//
// Keys panics if of is nil.
func (g *GocronLocker[L]) Keys(of func(job string) advisory.Key) *GocronLocker[L] {
	if of == nil {
		panic("pgadvisory: adapt.GocronLocker.Keys: the function is nil")
	}
	return &GocronLocker[L]{l: g.l, key: of, opts: g.opts}
}

// Lock takes the lock of a job's name. It fails with an [*advisory.NotAcquiredError] if another
// node, or another run, has it; with [advisory.ErrInvalidKey] if the name is empty. gocron skips
// the run after any error, and passes the error to its AfterLockError.
func (g *GocronLocker[L]) Lock(ctx context.Context, job string) (none L, err error) {
	lock, err := g.l.Lock(ctx, g.key(job), g.opts...)
	if err != nil {
		return none, fmt.Errorf("pgadvisory: job %q: %w", job, err)
	}
	return as[L](gocronLock{lock}, "Gocron"), nil
}

type gocronLock struct{ lock advisory.Lock }

// Unlock releases the lock, also when ctx has ended, as it has after the scheduler's Shutdown.
func (g gocronLock) Unlock(context.Context) error { return g.lock.Unlock() }
