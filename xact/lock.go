package xact

import (
	"context"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/wait"
)

// TryLock makes one try for key and reports whether tx holds it now. It is one
// round trip.
//
// Errors: [advisory.ErrInvalidKey] for the zero Key, before anything is sent;
// [advisory.ErrUnsafeServer] on a hot standby, and [advisory.ErrStaleSnapshot], see the
// package's documentation, and nothing is tried; [advisory.ErrAlreadyHeld] if tx holds the key by an earlier call of
// this package with the same Tx; [advisory.ErrLockTableFull]; ctx's error if it ended
// before the answer (then tx may hold the lock, until it ends); else the driver's.
// After an error of the server the transaction has failed, as after any. Rows of an earlier
// query are to be closed first: with rows open it is an error, after which, through lib/pq,
// the transaction can only be rolled back.
func TryLock(ctx context.Context, tx Tx, key advisory.Key, opts ...advisory.TxOption) (bool, error) {
	return lock(ctx, tx, "try lock", []advisory.Key{key}, opts, false)
}

// Lock waits until tx holds key. It is one round trip if the key is free.
//
// It waits by a row of tries, with pauses of up to 75 ms between them: to wait on the
// server in a transaction that goes on would hold up CREATE INDEX CONCURRENTLY
// until the transaction ends. [Do], whose transaction is its own, waits on the
// server. The end of ctx is noticed at once.
//
// A try does not succeed while others wait for the key on the server, as Do and
// sqlconn do: where there is always one of them, Lock never gets its turn. And a
// CREATE INDEX CONCURRENTLY that happens to come upon one of the tries waits for the
// end of tx all the same; if it is the holder's, Lock is told of a deadlock.
//
// If ctx or [advisory.MaxWait] ends first the error is an
// [*advisory.NotAcquiredError] that names the holders; tx is usable, holds what it
// held before (and perhaps key, if that was free and ctx ended during the one round
// trip), and no setting of it has changed. Waits of this package and of
// sqlconn that wait for each other are told [advisory.ErrDeadlock], one of them,
// within three seconds, given that they use one role and track_activities is on.
// Otherwise errors are those of [TryLock].
func Lock(ctx context.Context, tx Tx, key advisory.Key, opts ...advisory.TxOption) error {
	_, err := lock(ctx, tx, "lock", []advisory.Key{key}, opts, true)
	return err
}

// TryLockAll makes one try for all of the keys: tx holds them all now, or no more than
// before. It is two round trips, within a savepoint, and takes the keys in one
// order for all callers. A key may be given twice. Errors are those of [TryLock].
func TryLockAll(ctx context.Context, tx Tx, keys []advisory.Key, opts ...advisory.TxOption) (bool, error) {
	return lock(ctx, tx, "try lock all of", keys, opts, false)
}

// LockAll waits until tx holds all of the keys. It takes them in one order for all
// callers, so that two LockAll never wait for each other. If the wait ends before,
// tx holds no more than before. Otherwise it is as [Lock].
func LockAll(ctx context.Context, tx Tx, keys []advisory.Key, opts ...advisory.TxOption) error {
	_, err := lock(ctx, tx, "lock all of", keys, opts, true)
	return err
}

func lock(ctx context.Context, tx Tx, op string, keys []advisory.Key, opts []advisory.TxOption, waits bool) (bool, error) {
	keys = lockfn.Sorted(keys)
	taken, err := in(ctx, tx, op, keys, opts, waits, func(c *call) ([]advisory.Key, error) {
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
			return false, nil
		}
	}
	return c.lockOrDrop(keys, waits)
}

// lockOrDrop takes all of the keys within a savepoint, which it leaves as it found
// it if it does not get them.
func (c *call) lockOrDrop(keys []advisory.Key, waits bool) (granted bool, err error) {
	w := &wait.Wait{Session: c.Session, Caller: c.caller, Limit: c.limit, Settings: c.settings, Key: keys[0], Start: c.start}
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

// take tries the keys in turn and returns how many it got, up to the first that is
// busy.
func (c *call) take(exec func(string) (int64, error), before string, keys []advisory.Key) (int, error) {
	m, anyIsolation := c.settings.Mode, c.settings.AnyIsolation
	if len(keys) == 1 {
		rows, err := exec(before + lockfn.TryXact(keys[0], m, anyIsolation))
		switch {
		case err != nil:
			return 0, err
		case rows > lockfn.XactGranted:
			return 0, untried(rows, keys)
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
		return 0, untried(rows, keys)
	}
	return int(rows) - 1, nil
}

// untried is the error of an answer that says why none of keys was tried.
func untried(rows int64, keys []advisory.Key) error {
	if rows > int64(len(keys))+1 {
		return lockfn.ErrStandby
	}
	return errStale
}
