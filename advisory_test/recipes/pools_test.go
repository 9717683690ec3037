package recipes_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/pgbouncer"
	"github.com/pgadvisory/pgadvisory/locker"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

func closeMonth(ctx context.Context, db *sql.DB, work func(context.Context, *sql.Tx) error) (ran bool, err error) {
	return xact.TryDo(ctx, db.BeginTx, advisory.Name("billing", "close-month"), work)
}

// Through a pooler in transaction mode a transaction's lock excludes, and a Locker refuses to lock.
func TestPgBouncerInTransactionMode(t *testing.T) {
	url := pgbouncer.New(t, pgtest.URL(t), pgbouncer.Options{Mode: pgbouncer.Transaction, PoolSize: 3})
	db := open(t, "postgres", url)
	ran, err := closeMonth(t.Context(), db, func(ctx context.Context, _ *sql.Tx) error {
		ran, err := closeMonth(ctx, db, func(context.Context, *sql.Tx) error { return nil })
		if ran {
			t.Error("two at once")
		}
		return err
	})
	if err != nil || !ran {
		t.Error(ran, err)
	}
	if err := newLocker(t, url).Ping(t.Context()); !errors.Is(err, advisory.ErrUnsafeServer) {
		t.Errorf("a Locker: %v", err)
	}
}

func onPgxpool(ctx context.Context, pool *pgxpool.Pool, key advisory.Key, job func(context.Context) error) error {
	db := stdlib.OpenDBFromPool(pool) // shares pool's connections; leave room for the lock's
	defer db.Close()
	l := locker.New(db)
	defer l.Close()
	return l.Do(ctx, key, job)
}

func onSqlx(ctx context.Context, dbx *sqlx.DB, key advisory.Key, work func(context.Context, *sqlx.Conn) error) (ran bool, err error) {
	return sqlconn.TryDo(ctx, dbx.Connx, key, work)
}

func TestOnPgxpool(t *testing.T) {
	url := pgtest.URL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ran := false
	if err := onPgxpool(t.Context(), pool, advisory.Int64(4820), func(context.Context) error {
		ran = held(t, url) == 1
		return nil
	}); err != nil || !ran || held(t, url) != 0 {
		t.Error(ran, err)
	}
}

func TestOnSqlx(t *testing.T) {
	for _, driver := range []string{"postgres", "pgx"} {
		url := pgtest.URL(t)
		dbx := sqlx.NewDb(open(t, driver, url), driver)
		key := advisory.Int64(4820)
		ran, err := onSqlx(t.Context(), dbx, key, func(ctx context.Context, _ *sqlx.Conn) error {
			ran, err := onSqlx(ctx, dbx, key, func(context.Context, *sqlx.Conn) error { return nil })
			if ran {
				t.Error("two at once")
			}
			return err
		})
		if err != nil || !ran || held(t, url) != 0 {
			t.Error(driver, ran, err)
		}
	}
}
