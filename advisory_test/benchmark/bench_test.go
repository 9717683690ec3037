package benchmark_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// The benchmarks compare a call of this module with the same done by hand, turn about
// in one run, and report the ratio of the medians: "ours/hand" below 1 is quicker than
// by hand. An iteration is one of each.

// A choice is what else may differ: the keys, and whether the context can end.
type choice struct {
	name    string
	key     func(i int) int64
	endless bool
}

var choices = []choice{
	{"one key", func(int) int64 { return 4820 }, false},
	{"ever-new keys", func(i int) int64 { return int64(i) }, false},
	{"one key, endless context", func(int) int64 { return 4820 }, true},
}

// BenchmarkSession is a try and an unlock on a connection.
func BenchmarkSession(b *testing.B) {
	for _, d := range harness.BenchmarkDrivers {
		for _, c := range choices {
			b.Run(d.Name+"/"+c.name, func(b *testing.B) {
				p := d.Open(b, pgtest.URL(b))
				ours, hand := p.NewConn(b), p.NewConn(b)
				c.sideBySide(b, func(ctx context.Context, n int64) error {
					return lockAndUnlock(ctx, ours, advisory.Int64(n))
				}, func(ctx context.Context, n int64) error {
					return lockAndUnlockByHand(ctx, hand.(*sql.Conn), n)
				})
			})
		}
	}
}

func lockAndUnlock(ctx context.Context, conn sqlconn.Conn, k advisory.Key) error {
	if ok, err := sqlconn.TryLock(ctx, conn, k); !ok || err != nil {
		return fmt.Errorf("%v, %w", ok, err)
	}
	return sqlconn.Unlock(ctx, conn, k)
}

func lockAndUnlockByHand(ctx context.Context, conn *sql.Conn, key int64) error {
	var ok bool
	if err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", key).Scan(&ok); !ok || err != nil {
		return fmt.Errorf("%v, %w", ok, err)
	}
	if err := conn.QueryRowContext(ctx, "SELECT pg_advisory_unlock($1)", key).Scan(&ok); !ok || err != nil {
		return fmt.Errorf("%v, %w", ok, err)
	}
	return nil
}

// BenchmarkTransaction is a transaction that takes a lock and does nothing else.
func BenchmarkTransaction(b *testing.B) {
	for _, d := range harness.BenchmarkDrivers {
		for _, c := range choices {
			b.Run(d.Name+"/"+c.name, func(b *testing.B) {
				p := d.Open(b, pgtest.URL(b))
				c.sideBySide(b, func(ctx context.Context, n int64) error {
					ran, err := xact.TryDo(ctx, p.BeginTx, advisory.Int64(n), func(context.Context, *sql.Tx) error { return nil })
					if !ran {
						return fmt.Errorf("did not run: %w", err)
					}
					return err
				}, func(ctx context.Context, n int64) error {
					return transactionByHand(ctx, p.DB, n)
				})
			})
		}
	}
}

func transactionByHand(ctx context.Context, db *sql.DB, key int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var ok bool
	if err := tx.QueryRowContext(ctx, "SELECT pg_try_advisory_xact_lock($1)", key).Scan(&ok); !ok || err != nil {
		return fmt.Errorf("%v, %w", ok, err)
	}
	return tx.Commit()
}

// sideBySide runs both in turn and reports the ratio of their medians.
func (c choice) sideBySide(b *testing.B, ours, hand func(ctx context.Context, key int64) error) {
	ctx := context.Background()
	if !c.endless {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Hour)
		defer cancel()
	}
	took := [2][]time.Duration{}
	run := [2]func(ctx context.Context, key int64) error{ours, hand}
	i := 0
	for b.Loop() {
		i++
		for _, which := range [2]int{i % 2, 1 - i%2} { // each is first every other time
			start := time.Now()
			if err := run[which](ctx, c.key(i)); err != nil {
				b.Fatal(err)
			}
			took[which] = append(took[which], time.Since(start))
		}
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2].Nanoseconds()) / 1e3
	}
	o, h := median(took[0]), median(took[1])
	b.ReportMetric(o/h, "ours/hand")
	b.ReportMetric(o, "us-ours")
	b.ReportMetric(h, "us-hand")
	b.ReportMetric(0, "ns/op")
}
