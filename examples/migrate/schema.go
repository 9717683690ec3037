package main

import (
	"context"
	"database/sql"
)

// A schema is the result of the migrations, as the server sees it.
type schema struct {
	Version int   // the highest version
	Rows    int   // the number of rows in schema_version
	Steps   int   // the number of different versions
	Cents   int64 // the sum of all balances
	Login   bool  // there is a column or an index of step 4
	Locks   int   // advisory locks on keys in this database, held or waited for
}

// readSchema reads the schema from the server.
func readSchema(ctx context.Context, db *sql.DB) (s schema, err error) {
	err = db.QueryRowContext(ctx, `SELECT
		(SELECT coalesce(max(version), 0) FROM schema_version),
		(SELECT count(*) FROM schema_version),
		(SELECT count(DISTINCT version) FROM schema_version),
		(SELECT sum(balance) FROM accounts),
		EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'accounts'::regclass AND attname = 'login' AND NOT attisdropped)
			OR to_regclass('accounts_login') IS NOT NULL,
		(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid IN (1, 2)
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`).
		Scan(&s.Version, &s.Rows, &s.Steps, &s.Cents, &s.Login, &s.Locks)
	return s, err
}
