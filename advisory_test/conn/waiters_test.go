package conn_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// A waitKind is a way to wait for a lock. It calls held when it has got it, and then
// releases it.
type waitKind struct {
	name   string
	sliced bool // it waits on the server
	wait   func(ctx context.Context, p *harness.Pool, k advisory.Key, held func(), opts ...advisory.Option) error
}

var kinds = []waitKind{
	{"sqlconn.Lock", true, func(ctx context.Context, p *harness.Pool, k advisory.Key, held func(), opts ...advisory.Option) error {
		conn, err := p.Pin(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := sqlconn.Lock(ctx, conn, k, harness.OptionsAs[advisory.ConnOption](opts)...); err != nil {
			return err
		}
		held()
		return sqlconn.Unlock(ctx, conn, k, harness.OptionsAs[advisory.ConnOption](opts)...)
	}},
	{"sqlconn.Do", true, func(ctx context.Context, p *harness.Pool, k advisory.Key, held func(), opts ...advisory.Option) error {
		return p.Do(ctx, k, func(context.Context, sqlconn.Conn) error { held(); return nil }, harness.OptionsAs[advisory.ConnOption](opts)...)
	}},
	{"xact.Lock", false, func(ctx context.Context, p *harness.Pool, k advisory.Key, held func(), opts ...advisory.Option) error {
		return harness.InOwnTx(p, func(tx xact.Tx) error {
			err := xact.Lock(ctx, tx, k, harness.OptionsAs[advisory.TxOption](opts)...)
			return afterLock(tx, err, held)
		})
	}},
	{"xact.LockAll", false, func(ctx context.Context, p *harness.Pool, k advisory.Key, held func(), opts ...advisory.Option) error {
		keys := []advisory.Key{advisory.Int64(-1 << 63), k} // the least is always the first
		opts = append(opts, advisory.Shared)
		return harness.InOwnTx(p, func(tx xact.Tx) error {
			err := xact.LockAll(ctx, tx, keys, harness.OptionsAs[advisory.TxOption](opts)...)
			return afterLock(tx, err, held)
		})
	}},
	{"xact.Do", true, func(ctx context.Context, p *harness.Pool, k advisory.Key, held func(), opts ...advisory.Option) error {
		return p.TxDo(ctx, k, func(context.Context, xact.Tx) error { held(); return nil }, harness.OptionsAs[xact.BeginOption](opts)...)
	}},
	{"xact.Do, repeatable read", true, func(ctx context.Context, p *harness.Pool, k advisory.Key, held func(), opts ...advisory.Option) error {
		return p.TxDo(ctx, k, func(context.Context, xact.Tx) error { held(); return nil },
			append(harness.OptionsAs[xact.BeginOption](opts), xact.TxOptions(&sql.TxOptions{Isolation: sql.LevelRepeatableRead}))...)
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

// waiting has n of each kind wait for k, and returns when they all do. The group's
// error is what they end with, each named.
func waiting(p *harness.Pool, ctx context.Context, t testing.TB, n int, k advisory.Key) *errgroup {
	t.Helper()
	return waitingBy(p, t, n, func(kind waitKind) error { return kind.wait(ctx, p, k, func() {}) })
}

func waitingBy(p *harness.Pool, t testing.TB, n int, wait func(waitKind) error) *errgroup {
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
	harness.Eventually(t, "all wait", func() bool { return doWaiters(p, t) == n*len(kinds) })
	return &g
}

// waiters counts the sessions that wait for a lock on the server or between tries.
func doWaiters(p *harness.Pool, t testing.TB) int {
	t.Helper()
	return harness.Ask[int](t, p, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '/*pgadvisory waits%'")
}
