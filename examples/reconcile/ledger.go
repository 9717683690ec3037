package main

import (
	"context"
	"database/sql"
	"fmt"
)

const accounts = 3

// createLedger creates accounts and their entries. The tables do not prevent double work: there is
// no unique key over round and account.
func createLedger(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, `
		CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL DEFAULT 0);
		CREATE TABLE entries (round int NOT NULL, account int NOT NULL REFERENCES accounts, amount bigint NOT NULL);
		INSERT INTO accounts (id) SELECT generate_series(1, `+fmt.Sprint(accounts)+`)`)
	return err
}

// A sum is the totals of the ledger.
type sum struct {
	Entries  int   // in all
	Doubled  int   // rounds and accounts with more than one entry
	Missing  int   // rounds and accounts without an entry
	Balances int64 // of all accounts
}

func sumUp(ctx context.Context, db *sql.DB, rounds int) (s sum, err error) {
	err = db.QueryRowContext(ctx, `
		WITH work AS (
			SELECT round, a.id, (SELECT count(*) FROM entries e WHERE e.round = r.round AND e.account = a.id) AS n
			FROM generate_series(1, $1::int) r (round), accounts a
		)
		SELECT (SELECT count(*) FROM entries), count(*) FILTER (WHERE n > 1), count(*) FILTER (WHERE n = 0),
			(SELECT sum(balance) FROM accounts)
		FROM work`, rounds).Scan(&s.Entries, &s.Doubled, &s.Missing, &s.Balances)
	return s, err
}

// A holder is a session that holds a lock, as the server sees it.
type holder struct {
	PID         int
	Application string
}

// holders asks the server who holds the reconciliation lock.
func holders(ctx context.Context, db *sql.DB) (hs []holder, err error) {
	n, _ := reconciliation.Int64()
	rows, err := db.QueryContext(ctx, `
		SELECT pid, application_name FROM pg_locks JOIN pg_stat_activity USING (pid)
		WHERE locktype = 'advisory' AND granted AND classid = $1::bigint >> 32 AND objid = $1 & 4294967295 AND objsubid = 1
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, n)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var h holder
		if err := rows.Scan(&h.PID, &h.Application); err != nil {
			return nil, err
		}
		hs = append(hs, h)
	}
	return hs, rows.Err()
}
