package sqlconn

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// Held lists the advisory locks that conn holds, as the server sees it: also those
// that were taken by hand, and those of a transaction that is open on conn, for
// pg_locks does not tell the two levels apart. A lock held twice is listed once. Held leaves out
// locks of extensions, which are on no key.
func Held(ctx context.Context, conn Conn) ([]advisory.HeldLock, error) {
	locks, err := runCall(ctx, ctx, conn, func(c *call) (locks []advisory.HeldLock, err error) {
		err = c.Query(lockfn.Held, nil, func(rows *sql.Rows) error {
			l, err := lockfn.ScanHeld(rows)
			locks = append(locks, l)
			return err
		})
		return locks, err
	})
	if err != nil {
		return nil, fmt.Errorf("pgadvisory: list held locks: %w", lockfn.Meaning(bound.Ended(ctx, err)))
	}
	return locks, nil
}
