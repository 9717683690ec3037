package advisory_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// A waitKind is a way to wait for a lock. It calls held when it has got it, and then
// releases it.
type waitKind struct {
	name   string
	sliced bool // it waits on the server
	wait   func(ctx context.Context, p *pool, k advisory.Key, held func(), opts ...advisory.Option) error
}

var kinds = []waitKind{
	{"sqlconn.Lock", true, func(ctx context.Context, p *pool, k advisory.Key, held func(), opts ...advisory.Option) error {
		conn, err := p.pin(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := sqlconn.Lock(ctx, conn, k, optionsAs[advisory.ConnOption](opts)...); err != nil {
			return err
		}
		held()
		return sqlconn.Unlock(ctx, conn, k, optionsAs[advisory.ConnOption](opts)...)
	}},
	{"sqlconn.Do", true, func(ctx context.Context, p *pool, k advisory.Key, held func(), opts ...advisory.Option) error {
		return p.do(ctx, k, func(context.Context, sqlconn.Conn) error { held(); return nil }, optionsAs[advisory.ConnOption](opts)...)
	}},
	{"xact.Lock", false, func(ctx context.Context, p *pool, k advisory.Key, held func(), opts ...advisory.Option) error {
		return inOwnTx(p, func(tx xact.Tx) error {
			err := xact.Lock(ctx, tx, k, optionsAs[advisory.TxOption](opts)...)
			return afterLock(tx, err, held)
		})
	}},
	{"xact.LockAll", false, func(ctx context.Context, p *pool, k advisory.Key, held func(), opts ...advisory.Option) error {
		keys := []advisory.Key{advisory.Int64(-1 << 63), k} // the least is always the first
		opts = append(opts, advisory.Shared)
		return inOwnTx(p, func(tx xact.Tx) error {
			err := xact.LockAll(ctx, tx, keys, optionsAs[advisory.TxOption](opts)...)
			return afterLock(tx, err, held)
		})
	}},
	{"xact.Do", true, func(ctx context.Context, p *pool, k advisory.Key, held func(), opts ...advisory.Option) error {
		return p.txDo(ctx, k, func(context.Context, xact.Tx) error { held(); return nil }, optionsAs[xact.BeginOption](opts)...)
	}},
	{"xact.Do, repeatable read", true, func(ctx context.Context, p *pool, k advisory.Key, held func(), opts ...advisory.Option) error {
		return p.txDo(ctx, k, func(context.Context, xact.Tx) error { held(); return nil },
			append(optionsAs[xact.BeginOption](opts), xact.TxOptions(&sql.TxOptions{Isolation: sql.LevelRepeatableRead}))...)
	}},
}

// afterLock sees that the transaction is usable also if it did not get the lock.
func afterLock(tx xact.Tx, err error, held func()) error {
	if err == nil {
		held()
		return nil
	}
	if _, uerr := tx.ExecContext(context.Background(), "SELECT 1"); uerr != nil {
		return fmt.Errorf("the transaction is not usable (%w) after: %w", uerr, err)
	}
	return err
}

// inOwnTx commits. The transaction does not end with any context.
func inOwnTx(p *pool, fn func(tx xact.Tx) error) error {
	tx, err := p.begin(context.Background(), nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// waiting has n of each kind wait for k, and returns when they all do. The group's
// error is what they end with, each named.
func (p *pool) waiting(ctx context.Context, t testing.TB, n int, k advisory.Key) *errgroup {
	t.Helper()
	return p.waitingBy(t, n, func(kind waitKind) error { return kind.wait(ctx, p, k, func() {}) })
}

func (p *pool) waitingBy(t testing.TB, n int, wait func(waitKind) error) *errgroup {
	t.Helper()
	var g errgroup
	for range n {
		for _, kind := range kinds {
			g.Go(func() error {
				err := wait(kind)
				if err != nil {
					err = fmt.Errorf("%s: %w", kind.name, err)
				}
				return err
			})
		}
	}
	eventually(t, "all wait", func() bool { return p.waiters(t) == n*len(kinds) })
	return &g
}

// waiters counts the sessions that wait for a lock on the server or between tries.
func (p *pool) waiters(t testing.TB) int {
	t.Helper()
	return ask[int](t, p, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '/*pgadvisory waits%'")
}
