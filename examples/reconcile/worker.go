package main

import (
	"context"
	"database/sql"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// This file is the part to copy.

// reconciliation is the lock that all workers agree on.
var reconciliation = advisory.Int64(4820)

// reconcileIfFree reconciles unless another worker is doing so. In that case ran is false.
func reconcileIfFree(ctx context.Context, db *sql.DB, round int, progress func(account int) error) (ran bool, err error) {
	return sqlconn.TryDo(ctx, db.Conn, reconciliation, func(ctx context.Context, conn *sql.Conn) error {
		return reconcile(ctx, conn, round, progress)
	})
}

// reconcile makes the missing entries of a round. It works on the connection that holds the lock,
// so it can make no entry after the lock is lost. It continues where an interrupted worker stopped.
func reconcile(ctx context.Context, conn *sql.Conn, round int, progress func(account int) error) error {
	due, err := accountsDue(ctx, conn, round)
	if err != nil {
		return err
	}
	for _, account := range due {
		const enter = `WITH entry AS (
				INSERT INTO entries (round, account, amount) VALUES ($1, $2, 10) RETURNING account, amount
			)
			UPDATE accounts SET balance = balance + entry.amount FROM entry WHERE id = entry.account`
		if _, err := conn.ExecContext(ctx, enter, round, account); err != nil {
			return err
		}
		if err := progress(account); err != nil {
			return err
		}
	}
	return nil
}

// accountsDue returns the accounts without an entry in this round.
func accountsDue(ctx context.Context, conn *sql.Conn, round int) (due []int, err error) {
	const query = `SELECT id FROM accounts WHERE NOT EXISTS
		(SELECT FROM entries WHERE account = id AND round = $1) ORDER BY id`
	rows, err := conn.QueryContext(ctx, query, round)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var account int
		if err := rows.Scan(&account); err != nil {
			return nil, err
		}
		due = append(due, account)
	}
	return due, rows.Err()
}
