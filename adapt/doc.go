// Package adapt has locks in the shapes that schedulers and migration tools expect. It imports
// none of those tools.
//
//   - [Goose] is a SessionLocker and a Locker of goose.
//   - [Gocron] is a Locker of gocron, and [GocronElector] an Elector.
//   - [Cron] is a JobWrapper of robfig/cron.
//   - [Wrap] is a job function, func(ctx) error, for any other tool.
//
// Where a tool has an interface of its own in a signature, the function here has a type
// parameter for it: adapt.Gocron[gocron.Lock](l), adapt.Cron[cron.Job](l, key, nil).
//
// A scheduler that takes the lock itself cannot stop a job whose lock is lost. Only [Wrap], and
// the Do and TryDo of a Locker, end the job's ctx then.
package adapt
