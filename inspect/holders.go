package inspect

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// Holders returns who holds key now, in any mode. A follower can use it to name its leader. The
// list is empty if nobody holds key. [advisory.Holder] says which fields a role may not see. Unlike
// [Locks], Holders does not report which fields are hidden.
//
// Errors: [advisory.ErrInvalidKey] for the zero Key; otherwise those of the driver.
func Holders(ctx context.Context, db DB, key advisory.Key) ([]advisory.Holder, error) {
	if key.IsZero() {
		return nil, fmt.Errorf("pgadvisory: list the holders of a key: %w", advisory.ErrInvalidKey)
	}
	var holders []advisory.Holder
	err := query(ctx, db, lockfn.Holders, lockfn.HoldersArgs(key), func(rows *sql.Rows) error {
		h, err := lockfn.ScanHolder(rows, key)
		holders = append(holders, h)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("pgadvisory: list the holders of %s: %w", key, lockfn.Meaning(err))
	}
	return holders, nil
}
