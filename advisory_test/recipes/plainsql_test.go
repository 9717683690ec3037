package recipes_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

func before(ctx context.Context, db *sql.DB, job func(context.Context) error) error {
	var ok bool
	err := db.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", 4820).Scan(&ok)
	if err != nil || !ok {
		return err
	}
	defer db.ExecContext(ctx, "SELECT pg_advisory_unlock($1)", 4820) // perhaps on another connection
	return job(ctx)
}

func after(ctx context.Context, db *sql.DB, job func(context.Context) error) error {
	_, err := sqlconn.TryDo(ctx, db.Conn, advisory.Int64(4820), func(ctx context.Context, conn *sql.Conn) error {
		return job(ctx)
	})
	return err
}

// With plain SQL the unlock runs on another connection if the job leaves that of the lock in use.
func TestMovingOverFromPlainSQL(t *testing.T) {
	for name, do := range map[string]func(context.Context, *sql.DB, func(context.Context) error) error{
		"before": before, "after": after,
	} {
		url := pgtest.URL(t)
		db := open(t, "postgres", url)
		ran := false
		err := do(t.Context(), db, func(ctx context.Context) error {
			ran = true
			conn, err := db.Conn(ctx)
			t.Cleanup(func() { conn.Close() })
			return errors.Join(err, conn.PingContext(ctx))
		})
		want := 0
		if name == "before" {
			want = 1
		}
		if n := held(t, url); err != nil || !ran || n != want {
			t.Errorf("%s: ran %t, %d locks left, %v", name, ran, n, err)
		}
	}
}

// One who still uses plain SQL and one who has moved over exclude each other.
func TestMovingOverOneByOne(t *testing.T) {
	db := open(t, "postgres", pgtest.URL(t))
	never := func(context.Context) error { t.Error("two at once"); return nil }
	if err := before(t.Context(), db, func(ctx context.Context) error {
		conn, err := db.Conn(ctx) // the lock's, so that the other one gets its own
		if err != nil {
			return err
		}
		defer conn.Close()
		return after(ctx, db, never)
	}); err != nil {
		t.Error(err)
	}
}

// The calls of go-pglock, whose module pins a connection and gives it back by Close.
func pinnedBefore(ctx context.Context, db *sql.DB, job func(context.Context) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var ok bool
	err = conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", 4820).Scan(&ok)
	if err != nil || !ok {
		return err
	}
	if err := job(ctx); err != nil {
		return err // the connection goes back to the pool with the lock
	}
	_, err = conn.ExecContext(ctx, "SELECT pg_advisory_unlock($1)", 4820)
	return err
}

// A pinned connection that is given back keeps the lock if nothing unlocked it.
func TestMovingOverFromAPinnedConnection(t *testing.T) {
	failed := errors.New("the job failed")
	for name, do := range map[string]func(context.Context, *sql.DB, func(context.Context) error) error{
		"before": pinnedBefore, "after": after,
	} {
		url := pgtest.URL(t)
		db := open(t, "postgres", url)
		err := do(t.Context(), db, func(context.Context) error { return failed })
		want := 0
		if name == "before" {
			want = 1
		}
		if n := held(t, url); !errors.Is(err, failed) || n != want {
			t.Errorf("%s: %d locks left, want %d, %v", name, n, want, err)
		}
	}
}
