package wait

import (
	"database/sql"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// holders asks who holds the key. It is a courtesy of an error that is returned
// anyhow, so that its own failure is not told.
//
// It is also the statement that ends a wait: its text, which pg_stat_activity
// shows from now on, is not that of a waiter.
func (w *Wait) holders() []advisory.Holder {
	var hs []advisory.Holder
	query, args := lockfn.Holders, lockfn.HoldersArgs(w.Key)
	if w.Literal() {
		query, args = lockfn.HoldersOf(w.Key), nil
	}
	err := w.Query(query, args, func(rows *sql.Rows) error {
		h, err := lockfn.ScanHolder(rows)
		hs = append(hs, h)
		return err
	})
	if err != nil {
		return nil
	}
	return hs
}
