package xact

import (
	"context"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// TryLockAny tries the keys in the given order until one is free, and returns the key that tx holds
// now. ok is false if all keys were taken. It takes one round trip.
//
// Keys that tx took earlier by this package do not count as free. If tx holds all the keys, the
// error is [advisory.ErrAlreadyHeld]. Other errors are those of [TryLock].
func TryLockAny(ctx context.Context, tx Tx, keys []advisory.Key, opts ...advisory.TxOption) (key advisory.Key, ok bool, err error) {
	taken, err := runCall(ctx, tx, "try lock any of", keys, opts, false, func(c *call) ([]advisory.Key, error) {
		k, ok, err := c.tryAny(keys)
		if !ok {
			return nil, err
		}
		return []advisory.Key{k}, err
	})
	if len(taken) == 0 {
		return advisory.Key{}, false, err
	}
	return taken[0], true, nil
}

// tryAny takes the first free key.
func (c *call) tryAny(keys []advisory.Key) (k advisory.Key, ok bool, err error) {
	var free []advisory.Key
	for _, k := range keys {
		if err = c.alreadyHeld(k); err == nil {
			free = append(free, k)
		} else if lockfn.SQLState(err) != "" {
			return k, false, err
		}
	}
	if len(free) == 0 {
		return k, false, err
	}
	rows, err := c.Exec(lockfn.TryXactAny(free, c.settings.Mode, c.settings.AnyIsolation))
	switch {
	case err != nil:
		return k, false, err
	case rows > int64(len(free)):
		return k, false, notTriedError(rows, free)
	case c.caller.Err() != nil:
		return k, false, bound.Cause(c.caller)
	case rows == 0:
		c.taken = free[0]
		return k, false, nil
	}
	k = free[rows-1]
	c.owner.Add(c.settings.Mode, k)
	return k, true, nil
}
