package exclusion_test

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// A way is one to take locks.
type way struct {
	name string
	call func(ctx context.Context, c *lockCall) error
}

// waits are ways to wait for one lock of a Locker.
var waits = []way{lockWay, doWay}

var lockWay = way{"Lock", func(ctx context.Context, c *lockCall) error {
	lock, err := c.l.Lock(ctx, c.key, c.options()...)
	return c.took(lock, true, err)
}}

var doWay = way{"Do", func(ctx context.Context, c *lockCall) error { return c.l.Do(ctx, c.key, c.under, c.options()...) }}

func maxWait() advisory.CallOption { return advisory.MaxWait(rand.N(300 * time.Millisecond)) }

func (c *lockCall) some() []advisory.Key {
	return []advisory.Key{c.key, contendedKey(), contendedKey()}
}

// ways are all that there are.
var ways = []way{
	lockWay, doWay,
	{"TryLock", func(ctx context.Context, c *lockCall) error { return c.took(c.l.TryLock(ctx, c.key, c.options()...)) }},
	{"Lock, MaxWait", func(ctx context.Context, c *lockCall) error {
		lock, err := c.l.Lock(ctx, c.key, c.options(maxWait())...)
		return c.took(lock, true, err)
	}},
	{"Do, MaxWait", func(ctx context.Context, c *lockCall) error {
		return c.l.Do(ctx, c.key, c.under, c.options(maxWait())...)
	}},
	{"TryDo", func(ctx context.Context, c *lockCall) error {
		_, err := c.l.TryDo(ctx, c.key, c.under, c.options()...)
		return err
	}},
	{"LockAll", func(ctx context.Context, c *lockCall) error {
		locks, err := c.l.LockAll(ctx, c.some(), c.options(maxWait())...)
		return c.tookAll(locks, true, err)
	}},
	{"TryLockAll", func(ctx context.Context, c *lockCall) error {
		return c.tookAll(c.l.TryLockAll(ctx, c.some(), c.options()...))
	}},
	{"LockAny", func(ctx context.Context, c *lockCall) error {
		lock, err := c.l.LockAny(ctx, c.some(), c.options(maxWait())...)
		return c.took(lock, true, err)
	}},
	{"TryLockAny", func(ctx context.Context, c *lockCall) error {
		return c.took(c.l.TryLockAny(ctx, c.some(), c.options()...))
	}},
	{"Semaphore", func(ctx context.Context, c *lockCall) error {
		c.mode = advisory.Exclusive
		lock, err := c.l.Semaphore(advisory.Int64(-1), 3).Acquire(ctx, maxWait(), advisory.WithObserver(c))
		return c.took(lock, true, err)
	}},
	{"Do on a connection", func(ctx context.Context, c *lockCall) error {
		return sqlconn.Do(ctx, c.db.Conn, c.key, func(_ context.Context, conn *sql.Conn) error { return c.holdBlind(conn) }, c.mode, maxWait())
	}},
	{"Do in a transaction", func(ctx context.Context, c *lockCall) error {
		return xact.Do(ctx, c.db.BeginTx, c.key, func(_ context.Context, tx *sql.Tx) error { return c.holdBlind(tx) }, c.mode, maxWait())
	}},
}
