package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/xact"
)

// This file is the part to copy.

// A Step is one change of the schema. Migrate makes it in one transaction, which also records it.
type Step struct {
	Version int
	Name    string
	SQL     string
}

// migrations is the lock that all processes agree on.
var migrations = advisory.Name("bank", "migrations")

// Migrate makes the steps that have not been made yet, in order. Any number of processes may call
// it at the same moment. For each step one process makes it; the others wait until it is committed,
// then skip it. Migrate calls report after each step. It returns the error of the first step that
// fails.
func Migrate(ctx context.Context, db *sqlx.DB, steps []Step, report func(s Step, made bool)) error {
	for _, s := range steps {
		made := false
		err := xact.Do(ctx, db.BeginTxx, migrations, func(ctx context.Context, tx *sqlx.Tx) (err error) {
			made, err = s.make(ctx, tx)
			return err
		}, advisory.MaxWait(time.Minute)) // limits the wait, not the step
		if err != nil {
			return fmt.Errorf("step %d, %s: %w", s.Version, s.Name, err)
		}
		report(s, made)
	}
	return nil
}

// make makes the step in tx, which holds the lock, unless it was made before.
func (s Step) make(ctx context.Context, tx *sqlx.Tx) (made bool, err error) {
	// This needs the lock: two processes that run it at once collide in spite of IF NOT EXISTS.
	const table = `CREATE TABLE IF NOT EXISTS schema_version (
		version int NOT NULL, name text NOT NULL, made timestamptz NOT NULL DEFAULT now())`
	if _, err := tx.ExecContext(ctx, table); err != nil {
		return false, err
	}
	var skip bool
	if err := tx.GetContext(ctx, &skip, `SELECT EXISTS (SELECT FROM schema_version WHERE version = $1)`, s.Version); err != nil || skip {
		return false, err
	}
	if _, err := tx.ExecContext(ctx, s.SQL); err != nil {
		return false, err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO schema_version (version, name) VALUES ($1, $2)`, s.Version, s.Name)
	return err == nil, err
}
