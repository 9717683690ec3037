package wait

import (
	"database/sql"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// holders returns who holds the key, for the error of the wait. If the query fails it returns nil,
// since the wait's error is reported anyway.
//
// The query also ends the wait for others: pg_stat_activity shows its text from now on, which is not
// that of a waiter.
func (w *Wait) holders() []advisory.Holder {
	var hs []advisory.Holder
	query, args := lockfn.Holders, lockfn.HoldersArgs(w.Key)
	if w.Literal() {
		query, args = lockfn.HoldersOf(w.Key), nil
	}
	err := w.Query(query, args, func(rows *sql.Rows) error {
		h, err := lockfn.ScanHolder(rows, w.Key)
		hs = append(hs, h)
		return err
	})
	if err != nil {
		return nil
	}
	return hs
}
