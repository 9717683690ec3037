package xact

import (
	"context"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/wait"
)

// TryLock makes one try for key and reports whether tx holds it now. It takes one round trip. The
// errors are:
//
//   - [advisory.ErrInvalidKey] for the zero Key, before anything is sent
//   - [advisory.ErrUnsafeServer] on a hot standby, without a try
//   - [advisory.ErrStaleSnapshot], without a try; see the documentation of the package
//   - [advisory.ErrAlreadyHeld] if an earlier call of this package with the same Tx took the key
//   - [advisory.ErrLockTableFull]
//   - ctx's error, if ctx ended before the answer; tx may then hold the lock until tx ends
//   - the driver's error otherwise
//
// After an error of the server the transaction has failed, as after every failed statement. Close the
// rows of an earlier query first. While rows are open, TryLock returns an error; through lib/pq the
// transaction can then only be rolled back.
func TryLock(ctx context.Context, tx Tx, key advisory.Key, opts ...advisory.TxOption) (bool, error) {
	return lock(ctx, tx, "try lock", []advisory.Key{key}, opts, false)
}

// Lock waits until tx holds key. It takes one round trip if the key is free.
//
// Lock polls, with pauses of up to 75 ms. A wait on the server, in a transaction that continues,
// would delay CREATE INDEX CONCURRENTLY until the end of that transaction. [Do] waits on the
// server, because the transaction is its own. Lock detects the end of ctx at once.
//
// Polling has two limits:
//
//   - A try fails while others wait for the key on the server, as Do and package sqlconn do. If there
//     is always such a waiter, Lock never gets the key.
//   - A CREATE INDEX CONCURRENTLY that meets one of the tries still waits for the end of tx. If it
//     runs in the session that holds the key, Lock fails with [advisory.ErrDeadlock].
//
// If ctx or [advisory.MaxWait] ends first, Lock returns an [*advisory.NotAcquiredError] that names
// the holders. tx is usable, its settings are unchanged, and it holds what it held before.
// Exception: it may also hold key, if key was free and ctx ended during the one round trip.
//
// If waits of this package and of sqlconn wait for each other, one of them fails with ErrDeadlock
// within three seconds. This requires that they use one role and that track_activities is on. Other
// errors are those of [TryLock].
func Lock(ctx context.Context, tx Tx, key advisory.Key, opts ...advisory.TxOption) error {
	_, err := lock(ctx, tx, "lock", []advisory.Key{key}, opts, true)
	return err
}

// TryLockAll makes one try for all of the keys. tx then holds all of them, or no more than before.
// It takes two round trips, within a savepoint. It takes the keys in the same order for all
// callers. keys may contain a key twice. Errors are those of [TryLock].
func TryLockAll(ctx context.Context, tx Tx, keys []advisory.Key, opts ...advisory.TxOption) (bool, error) {
	return lock(ctx, tx, "try lock all of", keys, opts, false)
}

// LockAll waits until tx holds all of the keys. It takes the keys in the same order for all
// callers, so two calls of LockAll never wait for each other. If the wait ends without the locks,
// tx holds no more than before. The limits and errors are those of [Lock].
func LockAll(ctx context.Context, tx Tx, keys []advisory.Key, opts ...advisory.TxOption) error {
	_, err := lock(ctx, tx, "lock all of", keys, opts, true)
	return err
}

func lock(ctx context.Context, tx Tx, op string, keys []advisory.Key, opts []advisory.TxOption, waits bool) (bool, error) {
	keys = lockfn.Sorted(keys)
	taken, err := runCall(ctx, tx, op, keys, opts, waits, func(c *call) ([]advisory.Key, error) {
		granted, err := c.lock(keys, waits)
		if !granted {
			return nil, err
		}
		return keys, err
	})
	return len(taken) > 0, err
}

func (c *call) lock(keys []advisory.Key, waits bool) (granted bool, err error) {
	for _, k := range keys {
		if err := c.alreadyHeld(k); err != nil {
			return false, err
		}
	}
	if len(keys) == 1 { // needs no savepoint
		taken, err := c.take(c.Exec, "", keys)
		if err != nil {
			return false, err
		}
		if c.caller.Err() != nil {
			return false, bound.Cause(c.caller)
		}
		if taken == 1 {
			c.owner.Add(c.settings.Mode, keys...)
			return true, nil
		}
		if !waits {
			c.taken = keys[0]
			return false, nil
		}
	}
	return c.lockOrDrop(keys, waits)
}

// lockOrDrop takes all of the keys within a savepoint. If it does not get them, it rolls back to the
// savepoint.
func (c *call) lockOrDrop(keys []advisory.Key, waits bool) (granted bool, err error) {
	w := &wait.Wait{Session: c.Session, Caller: c.caller, Limit: c.limit, Settings: c.settings, Key: keys[0], Start: c.start, InTx: true}
	taken, err := c.take(c.Exec, lockfn.Savepoint+"; ", keys)
	if err == nil && !waits && c.caller.Err() != nil {
		err = bound.Cause(c.caller)
	}
	switch {
	case err != nil || taken == len(keys) || !waits:
	case wait.OneTry(c.settings):
		w.Key = keys[taken]
		err = w.NotAcquired()
	default:
		w.Key = keys[taken]
		err = w.Until(func() (bool, error) {
			w.Pause()
			n, err := c.take(w.Exec, "", keys[taken:])
			if taken += n; taken < len(keys) {
				w.Key = keys[taken]
			}
			return taken == len(keys), err
		})
	}
	if err == nil && taken == len(keys) && c.caller.Err() != nil {
		err = w.NotAcquired()
	}

	if err != nil || taken < len(keys) {
		if taken < len(keys) {
			c.taken = keys[taken]
		}
		if lockfn.SQLState(err) != lockfn.InFailedTransaction { // else there is no savepoint
			if derr := c.Run(lockfn.Drop); err == nil {
				err = derr
			}
		}
		return false, err
	}
	if err := c.Run(lockfn.Keep); err != nil {
		return false, err
	}
	c.owner.Add(c.settings.Mode, keys...)
	return true, nil
}

// take tries the keys in turn, up to the first that is not free. It returns how many it took.
func (c *call) take(exec func(string) (int64, error), before string, keys []advisory.Key) (int, error) {
	m, anyIsolation := c.settings.Mode, c.settings.AnyIsolation
	if len(keys) == 1 {
		rows, err := exec(before + lockfn.TryXact(keys[0], m, anyIsolation))
		switch {
		case err != nil:
			return 0, err
		case rows > lockfn.XactGranted:
			return 0, notTriedError(rows, keys)
		}
		return int(rows), nil
	}
	rows, err := exec(before + lockfn.TryXactAll(keys, m, anyIsolation))
	switch {
	case err != nil:
		return 0, err
	case rows == 0:
		return len(keys), nil
	case rows > int64(len(keys)):
		return 0, notTriedError(rows, keys)
	}
	return int(rows) - 1, nil
}

// notTriedError returns the error for an answer that says that no key was tried.
func notTriedError(rows int64, keys []advisory.Key) error {
	if rows > int64(len(keys))+1 {
		return lockfn.ErrStandby
	}
	return errStale
}
