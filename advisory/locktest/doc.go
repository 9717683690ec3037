// Package locktest has a Locker in memory, for unit tests of code that takes an
// [advisory.Locker]: no database, no connection, and nothing to clean up.
//
// It does what *locker.Locker does, errors, contexts, options and the Observer's
// events included; one suite of tests runs on both. What a test cannot do to a
// database at will, it can do here: have another node hold a key ([Locker.Occupy]),
// and lose a lock ([Locker.Lose]).
//
// All of its time passes in timers, and it starts no goroutine that waits, so it
// works in a bubble of testing/synctest, where waits take no time at all.
//
// What *locker.Locker has beyond [advisory.Locker] is not here: LockAll, LockAny,
// Semaphore, Lead and the like. Code that takes those needs a server in its tests,
// or an interface of its own to put something else in their place.
package locktest
