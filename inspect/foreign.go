package inspect

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// Foreign returns how many advisory locks of this database, held and waited for, are of no
// key. Extensions take such locks for purposes of their own; pg_locks shows them with an objsubid
// other than 1 and 2. No lock function can take or release one, so [Locks], [Suspects] and
// [Handler] leave them out. A session that waits for one is in the WaitsFor of its other locks.
//
// Foreign fails with the errors of the driver. When the server's lock table is full it works as
// [Locks] does.
func Foreign(ctx context.Context, db DB) (int, error) {
	n, err := countForeign(ctx, db, lockfn.Foreign)
	if err = lockfn.Meaning(err); errors.Is(err, advisory.ErrLockTableFull) {
		if bare, err2 := countForeign(ctx, db, lockfn.ForeignBare); err2 == nil {
			n, err = bare, nil
		}
	}
	if err != nil {
		return 0, fmt.Errorf("pgadvisory: count the locks of extensions: %w", err)
	}
	return n, nil
}

func countForeign(ctx context.Context, db DB, text string) (n int, err error) {
	err = query(ctx, db, text, nil, func(rows *sql.Rows) error { return rows.Scan(&n) })
	return n, err
}
