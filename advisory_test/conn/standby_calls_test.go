package conn_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/pgadvisory/pgadvisory/adapt"
	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// A claimant takes locks on one connection, in any way that there is, and releases them.
type claimant struct {
	name string
	lock func(ctx context.Context, conn sqlconn.Conn, m advisory.Mode) (ran bool, err error)
}

var claimants = func() (all []claimant) {
	keys := []advisory.Key{harness.Key, advisory.Pair(-1, 7)}
	release := func(conn sqlconn.Conn, m advisory.Mode, ran bool, err error) (bool, error) {
		if ran {
			err = sqlconn.Unlock(context.Background(), conn, harness.Key, m)
		}
		return ran, err
	}
	waits := func(opts ...advisory.ConnOption) func(context.Context, sqlconn.Conn, advisory.Mode) (bool, error) {
		return func(ctx context.Context, conn sqlconn.Conn, m advisory.Mode) (bool, error) {
			err := sqlconn.Lock(ctx, conn, harness.Key, append(opts, m)...)
			return release(conn, m, err == nil, err)
		}
	}
	all = append(all,
		claimant{"sqlconn.TryLock", func(ctx context.Context, conn sqlconn.Conn, m advisory.Mode) (bool, error) {
			ran, err := sqlconn.TryLock(ctx, conn, harness.Key, m)
			return release(conn, m, ran, err)
		}},
		claimant{"sqlconn.Lock", waits()},
		claimant{"sqlconn.Lock, PlainWait", waits(sqlconn.PlainWait())},
		claimant{"sqlconn.Lock, MaxWait(0)", waits(advisory.MaxWait(0))},
		claimant{"GooseLocker.SessionLock", func(ctx context.Context, conn sqlconn.Conn, m advisory.Mode) (bool, error) {
			g := adapt.Goose(harness.Key, m)
			if err := g.SessionLock(ctx, conn.(*sql.Conn)); err != nil {
				return false, err
			}
			return true, g.SessionUnlock(ctx, conn.(*sql.Conn))
		}},
	)
	for _, o := range []*sql.TxOptions{nil, {ReadOnly: true}, {Isolation: sql.LevelRepeatableRead}, {Isolation: sql.LevelRepeatableRead, ReadOnly: true}} {
		what := ""
		if o != nil {
			what = fmt.Sprintf(", %v, read only %v", o.Isolation, o.ReadOnly)
		}
		begin := func(conn sqlconn.Conn) func(context.Context, *sql.TxOptions) (*sql.Tx, error) {
			return conn.(*sql.Conn).BeginTx
		}
		all = append(all,
			claimant{"xact.Do" + what, func(ctx context.Context, conn sqlconn.Conn, m advisory.Mode) (ran bool, err error) {
				err = xact.Do(ctx, begin(conn), harness.Key, func(context.Context, *sql.Tx) error { ran = true; return nil }, m, xact.TxOptions(o))
				return ran, err
			}},
			claimant{"xact.TryDo" + what, func(ctx context.Context, conn sqlconn.Conn, m advisory.Mode) (ran bool, err error) {
				return xact.TryDo(ctx, begin(conn), harness.Key, func(context.Context, *sql.Tx) error { return nil }, m, xact.TxOptions(o))
			}},
		)
		if o == nil || !o.ReadOnly {
			continue // through lib/pq the caller's own begin fails on a standby
		}
		for _, f := range harness.Foreign {
			for _, any := range []bool{false, true} {
				if o.Isolation != sql.LevelDefault && !any {
					continue // stale, on a primary
				}
				all = append(all, claimant{fmt.Sprintf("xact.%s%s, any isolation %v", f.Name, what, any), func(ctx context.Context, conn sqlconn.Conn, m advisory.Mode) (bool, error) {
					tx, err := begin(conn)(ctx, o)
					if err != nil {
						return false, err
					}
					defer tx.Rollback()
					opts := []advisory.TxOption{m}
					if any {
						opts = append(opts, xact.AnyIsolation())
					}
					ran, err := f.Lock(new(noTest), tx, keys, opts...)
					if _, uerr := tx.ExecContext(ctx, "SELECT 1"); uerr != nil {
						err = fmt.Errorf("the transaction is not usable: %w (after %v)", uerr, err)
					}
					return ran, err
				}})
			}
		}
	}
	return all
}()

// noTest stands for the test in calls that are made outside of one.
type noTest struct{ testing.TB }

func (*noTest) Context() context.Context { return context.Background() }
func (*noTest) Errorf(string, ...any)    {}

// A standby refuses what a primary grants, and takes nothing, in all calls and modes; on the
// same connections the calls work once it has been promoted.
func TestEveryCallRefusesAHotStandby(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel() // on a server of its own
	server := harness.Standby(t)
	type place struct {
		driver string
		p      *harness.Pool
		conn   sqlconn.Conn
	}
	var places []place
	for _, d := range harness.Drivers[:2] {
		p := d.Open(t, server.URL())
		places = append(places, place{d.Name, p, p.NewConn(t)})
	}
	each := func(check func(what string, pl place, ran bool, err error)) {
		for _, pl := range places {
			for _, c := range claimants {
				for _, m := range harness.Modes {
					ran, err := c.lock(t.Context(), pl.conn, m)
					check(fmt.Sprintf("%s, %s, %v", pl.driver, c.name, m), pl, ran, err)
					if held, err := sqlconn.Held(t.Context(), pl.conn); len(held) > 0 || err != nil {
						t.Errorf("%s, %s, %v: afterwards it holds %v, %v", pl.driver, c.name, m, held, err)
						sqlconn.UnlockAll(t.Context(), pl.conn)
					}
				}
			}
		}
	}
	each(func(what string, _ place, ran bool, err error) {
		var unsafe *advisory.UnsafeServerError
		if ran || !errors.Is(err, advisory.ErrUnsafeServer) || !errors.As(err, &unsafe) || unsafe.Reason != advisory.Standby {
			t.Errorf("%s: on a standby: %v, %v", what, ran, err)
		}
	})
	// There is nothing to release, and to ask is no error.
	for _, pl := range places {
		if err := sqlconn.UnlockAll(t.Context(), pl.conn); err != nil {
			t.Error(err)
		}
		if err := sqlconn.Unlock(t.Context(), pl.conn, harness.Key); !errors.Is(err, advisory.ErrNotHeld) {
			t.Error(err)
		}
		for what, err := range map[string]error{
			"sqlconn.Do":    pl.p.Do(t.Context(), harness.Key, func(context.Context, sqlconn.Conn) error { return errors.New("ran") }),
			"sqlconn.TryDo": harness.Second(pl.p.TryDo(t.Context(), harness.Key, func(context.Context, sqlconn.Conn) error { return errors.New("ran") })),
			// Not through a connection of ours: pgx closes one that cannot begin.
			"xact.Do, serializable": pl.p.TxDo(t.Context(), harness.Key, func(context.Context, xact.Tx) error { return errors.New("ran") }, xact.TxOptions(&sql.TxOptions{Isolation: sql.LevelSerializable})),
		} {
			if !errors.Is(err, advisory.ErrUnsafeServer) {
				t.Errorf("%s, %s: %v", pl.driver, what, err)
			}
		}
	}
	if !harness.Ask[bool](t, places[0].p, "SELECT pg_promote()") {
		t.Fatal("the standby was not promoted")
	}
	each(func(what string, _ place, ran bool, err error) {
		if !ran || err != nil {
			t.Errorf("%s: after the promotion: %v, %v", what, ran, err)
		}
	})
}
