package conn_test

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// handovers are the ways to wait whose handover is measured. They call got when they
// have the lock.
var handovers = []struct {
	name string
	wait func(ctx context.Context, p *harness.Pool, got func()) error
}{
	{"pg_advisory_lock", func(ctx context.Context, p *harness.Pool, got func()) error {
		return doByHand(p, ctx, func(conn *sql.Conn) error {
			_, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock(4820)")
			return err
		}, got)
	}},
	{"polling each 100 ms", func(ctx context.Context, p *harness.Pool, got func()) error {
		return doByHand(p, ctx, func(conn *sql.Conn) error {
			for {
				var ok bool
				err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock(4820)").Scan(&ok)
				if ok || err != nil {
					return err
				}
				time.Sleep(100 * time.Millisecond)
			}
		}, got)
	}},
	{"sqlconn.Lock", func(ctx context.Context, p *harness.Pool, got func()) error {
		return p.Do(ctx, harness.Key, func(context.Context, sqlconn.Conn) error { got(); return nil })
	}},
	{"xact.Do", func(ctx context.Context, p *harness.Pool, got func()) error {
		return p.TxDo(ctx, harness.Key, func(context.Context, xact.Tx) error { got(); return nil })
	}},
	{"xact.Do, repeatable read", func(ctx context.Context, p *harness.Pool, got func()) error {
		return p.TxDo(ctx, harness.Key, func(context.Context, xact.Tx) error { got(); return nil },
			xact.TxOptions(&sql.TxOptions{Isolation: sql.LevelRepeatableRead}))
	}},
	{"xact.Lock", func(ctx context.Context, p *harness.Pool, got func()) error {
		return harness.InOwnTx(p, func(tx xact.Tx) error {
			err := xact.Lock(ctx, tx, harness.Key)
			got()
			return err
		})
	}},
}

func doByHand(p *harness.Pool, ctx context.Context, lock func(conn *sql.Conn) error, got func()) error {
	conn, err := p.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := lock(conn); err != nil {
		return err
	}
	got()
	_, err = conn.ExecContext(ctx, "SELECT pg_advisory_unlock(4820)")
	return err
}

// A lock is handed over when it is released, not at the next try; but for xact.Lock,
// which makes tries.
func TestHandover(t *testing.T) {
	pgtest.Slow(t)
	harness.EachDriverAtOnce(t, func(t *testing.T, p *harness.Pool) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*harness.Patience)
		defer cancel()
		holder := p.NewConn(t)
		times := make([]harness.Spread, len(handovers))
		for range 8 * harness.Rounds(t) {
			for i, way := range handovers { // by turns, so that all have the same weather
				harness.DoSQL(t, holder, "SELECT pg_advisory_lock(4820)")
				var got time.Time
				done := make(chan error, 1)
				go func() { done <- way.wait(ctx, p, func() { got = time.Now() }) }()
				time.Sleep(20*time.Millisecond + rand.N(100*time.Millisecond))
				released := time.Now()
				harness.DoSQL(t, holder, "SELECT pg_advisory_unlock(4820)")
				if err := <-done; err != nil {
					t.Fatalf("%s: %v", way.name, err)
				}
				times[i] = append(times[i], got.Sub(released))
			}
		}
		blocking, polling := times[0].Median(), times[1].Median()
		for i, way := range handovers {
			t.Logf("%s: %v, %.1f times blocking", way.name, times[i], float64(times[i].Median())/float64(blocking))
			if m := times[i].Median(); i > 1 && way.name != "xact.Lock" && m > polling {
				t.Errorf("%s: the median handover takes %v, polling each 100 ms %v", way.name, m, polling)
			}
		}
	})
}
