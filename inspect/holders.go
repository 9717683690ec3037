package inspect

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// Holders lists who holds key now, in any mode: by it a follower names its leader. Nobody
// holds it if the list is empty. [advisory.Holder] says what a role may not see; nothing
// tells here that it may not, as [Locks] does.
//
// Errors: [advisory.ErrInvalidKey] for the zero Key; those of the driver.
func Holders(ctx context.Context, db DB, key advisory.Key) ([]advisory.Holder, error) {
	if key.IsZero() {
		return nil, fmt.Errorf("pgadvisory: list the holders of a key: %w", advisory.ErrInvalidKey)
	}
	var holders []advisory.Holder
	err := query(ctx, db, lockfn.Holders, lockfn.HoldersArgs(key), func(rows *sql.Rows) error {
		h, err := lockfn.ScanHolder(rows)
		holders = append(holders, h)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("pgadvisory: list the holders of %s: %w", key, lockfn.Meaning(err))
	}
	return holders, nil
}
