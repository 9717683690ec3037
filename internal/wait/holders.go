package wait

import (
	"database/sql"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/statement"
)

// Holders asks on s who holds k.
func Holders(s statement.Session, k advisory.Key) (hs []advisory.Holder, err error) {
	query, args := lockfn.Holders, lockfn.HoldersArgs(k)
	if s.Literal() {
		query, args = lockfn.HoldersOf(k), nil
	}
	err = s.Query(query, args, func(rows *sql.Rows) error {
		h, err := lockfn.ScanHolder(rows, k)
		hs = append(hs, h)
		return err
	})
	if err != nil {
		return nil, err
	}
	return hs, nil
}

// holders returns who holds the key, for the error of the wait. If the query fails it returns nil,
// since the wait's error is reported anyway.
//
// The query also ends the wait for others: pg_stat_activity shows its text from now on, which is not
// that of a waiter.
func (w *Wait) holders() []advisory.Holder {
	hs, _ := Holders(w.Session, w.Key)
	return hs
}

// reportLong sends the event of a long wait if one is due. It asks for the holders on the connection
// of the wait, so it is called between two rounds.
//
// An error of the server's leaves a transaction unusable. If the next round does not restart it, the
// wait is over.
func (w *Wait) reportLong() error {
	o := w.Settings.Observer
	if o == nil || w.long.left(w.Settings, w.Start) > 0 {
		return nil
	}
	hs, err := Holders(w.Session, w.Key)
	if restarts := w.alone || w.Before != ""; err != nil && !(restarts && lockfn.SQLState(err) != "") {
		return err
	}
	w.long.report(w.Caller, o, w.Key, w.Settings, w.Start, hs)
	return nil
}
