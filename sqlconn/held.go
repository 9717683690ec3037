package sqlconn

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// Held returns the advisory locks that conn holds, as the server sees them. It includes locks that
// were taken with plain SQL, and those of a transaction that is open on conn: pg_locks does not
// separate the two levels. A lock that is held twice is listed once. Held leaves out locks of
// extensions, which are on no key.
//
// If ctx ends before the answer, Held fails with ctx's error. conn stays usable unless the server did
// not answer in time; then it is discarded.
func Held(ctx context.Context, conn Conn) ([]advisory.HeldLock, error) {
	locks, err := list(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("pgadvisory: list held locks: %w", lockfn.Meaning(err))
	}
	return locks, nil
}

func list(ctx context.Context, conn Conn) ([]advisory.HeldLock, error) {
	if err := mustHave(ctx, conn); err != nil {
		return nil, err
	}
	locks, err := runCall(ctx, ctx, conn, func(c *call) (locks []advisory.HeldLock, err error) {
		err = c.Query(lockfn.Held, nil, func(rows *sql.Rows) error {
			l, err := lockfn.ScanHeld(rows)
			locks = append(locks, l)
			return err
		})
		return locks, err
	})
	return locks, bound.Ended(ctx, err)
}
