package xact_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/xact"
)

var (
	ctx context.Context
	db  *sql.DB // sql.Open("postgres", url), with the driver of your choice
)

// A step of a migration, which every process of a service may start: one makes it, the
// others wait until it is committed, and see that it was made.
func ExampleDo() {
	err := xact.Do(ctx, db.BeginTx, advisory.Name("bank", "migrations"),
		func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "ALTER TABLE accounts ADD COLUMN IF NOT EXISTS iban text")
			return err
		},
		advisory.MaxWait(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
}

// A batch job that needs to run once.
func ExampleTryDo() {
	ran, err := xact.TryDo(ctx, db.BeginTx, advisory.Name("billing", "close-month"),
		func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "CALL close_month()")
			return err
		})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("closed here:", ran)
}

// At the other isolation levels, too, fn sees what the last holder committed.
func ExampleTxOptions() {
	err := xact.Do(ctx, db.BeginTx, advisory.Name("billing", "close-month"),
		func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "CALL close_month()")
			return err
		},
		xact.TxOptions(&sql.TxOptions{Isolation: sql.LevelSerializable}))
	if err != nil {
		log.Fatal(err)
	}
}

// A lock in a transaction that was begun elsewhere. There is no unlock: the lock ends
// with the transaction.
func ExampleTryLock() {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()

	ok, err := xact.TryLock(ctx, tx, advisory.Name("account", "17"))
	if err != nil {
		log.Fatal(err)
	}
	if !ok {
		return // somebody else is at this account
	}
	if _, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = 0 WHERE id = 17"); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
}

// A transfer locks both accounts. The order in which they are given does not matter,
// so a transfer in the other direction at the same moment does not deadlock.
func ExampleLockAll() {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()

	from, to := "17", "4"
	keys := []advisory.Key{advisory.Name("account", from), advisory.Name("account", to)}
	if err := xact.LockAll(ctx, tx, keys); err != nil {
		log.Fatal(err)
	}
	if _, err := tx.ExecContext(ctx, "CALL transfer($1, $2, 100)", from, to); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
}

// Workers share batches: each takes the first free one.
func ExampleTryLockAny() {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()

	batches := []advisory.Key{advisory.Pair(7, 1), advisory.Pair(7, 2), advisory.Pair(7, 3)}
	key, ok, err := xact.TryLockAny(ctx, tx, batches)
	if err != nil {
		log.Fatal(err)
	}
	if !ok {
		return // all are taken
	}
	_, batch, _ := key.Pair()
	if _, err := tx.ExecContext(ctx, "CALL process_batch($1)", batch); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
}
