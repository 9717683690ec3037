//go:build linux || darwin || freebsd

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/locker"
)

// session holds the lock at session level, in a Locker.
func (k *keep) session() error {
	ctx, acquired := k.acquiring()
	db, version, err := k.order.Settings.open(ctx, k.order.Application)
	if err != nil {
		acquired()
		return err
	}
	defer db.Close()
	options := []locker.Option{locker.WithMaxConns(2)}
	if k.order.Failover != 0 {
		options = append(options, locker.WithFailover(k.order.Failover))
	}
	if version >= 130000 { // older servers cannot draw tokens
		options = append(options, locker.WithFencing(), locker.WithTokenEpoch(k.order.TokenEpoch))
	}
	locker := locker.New(db, options...)
	defer locker.Close()

	start := time.Now()
	var calls []advisory.LockerOption
	if k.order.Shared {
		calls = append(calls, advisory.Shared)
	}
	switch {
	case k.order.Once:
		calls = append(calls, advisory.MaxWait(0))
	case k.order.MaxWait != nil:
		calls = append(calls, advisory.MaxWait(*k.order.MaxWait))
	}
	lock, err := locker.Lock(ctx, k.order.Key, calls...)
	acquired()
	if e, ok := errors.AsType[*advisory.UnsafeServerError](err); ok && e.Reason == advisory.Pooler {
		return fmt.Errorf("%w (if it is in transaction mode, --scope transaction works)", err)
	}
	if err != nil {
		return err
	}
	work := lock.Context()
	err = k.hold(held{Token: lock.Token(), Waited: time.Since(start)}, work.Done(), func() error { return context.Cause(work) })
	if err != nil {
		return err
	}
	return lock.Unlock()
}
