// Package orm_test takes locks in the transactions of GORM and bun, as docs/recipes.md has it.
package orm_test

import (
	"context"
	"database/sql"
	"testing"

	_ "github.com/lib/pq"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/xact"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var key = advisory.Name("billing", "nightly")

func onGorm(ctx context.Context, gdb *gorm.DB, work func(tx *gorm.DB) error) (ran bool, err error) {
	err = gdb.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		ok, err := xact.TryLock(ctx, tx.Statement.ConnPool.(xact.Tx), key)
		if err != nil || !ok {
			return err
		}
		ran = true
		return work(tx)
	})
	return ran, err
}

func onBun(ctx context.Context, bdb *bun.DB, work func(context.Context, bun.Tx) error) (ran bool, err error) {
	return xact.TryDo(ctx, bdb.BeginTx, key, work)
}

func TestGorm(t *testing.T) {
	for _, prepare := range []bool{false, true} {
		gdb, err := gorm.Open(postgres.New(postgres.Config{Conn: open(t)}), &gorm.Config{PrepareStmt: prepare})
		if err != nil {
			t.Fatal(err)
		}
		excludes(t, func(work func() error) (bool, error) {
			return onGorm(t.Context(), gdb, func(*gorm.DB) error { return work() })
		})
	}
}

func TestBun(t *testing.T) {
	bdb := bun.NewDB(open(t), pgdialect.New())
	excludes(t, func(work func() error) (bool, error) {
		return onBun(t.Context(), bdb, func(context.Context, bun.Tx) error { return work() })
	})
}

func open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// excludes checks that work keeps out others until its transaction has ended.
func excludes(t *testing.T, try func(work func() error) (ran bool, err error)) {
	t.Helper()
	for range 2 {
		ran, err := try(func() error {
			ran, err := try(func() error { return nil })
			if ran {
				t.Error("two at once")
			}
			return err
		})
		if err != nil || !ran {
			t.Errorf("ran %t, %v", ran, err)
		}
	}
}
