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

// Ask is [Holders] for a call that goes on without the answer: if the server returns an error, the list
// is empty. If tx is true, a transaction of the caller's is open, and a savepoint keeps it usable. Some
// drivers prepare the query, which fails behind a pooler that has changed the session.
func Ask(s statement.Session, k advisory.Key, tx bool) ([]advisory.Holder, error) {
	if tx {
		if err := s.Run(lockfn.Savepoint); err != nil {
			return nil, err
		}
	}
	hs, err := Holders(s, k)
	if err != nil && lockfn.SQLState(err) == "" {
		return nil, err
	}
	if tx {
		end := lockfn.Keep
		if err != nil {
			end = lockfn.Drop
		}
		if err := s.Run(end); err != nil {
			return nil, err
		}
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
func (w *Wait) reportLong() error {
	o := w.Settings.Observer
	if o == nil || w.long.left(w.Settings, w.Start) > 0 {
		return nil
	}
	ask := func() ([]advisory.Holder, error) { return Ask(w.Session, w.Key, w.InTx) }
	if restarts := w.alone || w.Before != ""; !restarts && !w.InTx {
		// A transaction may be open, and an error leaves it unusable.
		ask = func() ([]advisory.Holder, error) { return Holders(w.Session, w.Key) }
	}
	hs, err := ask()
	if err != nil {
		return err
	}
	w.long.report(w.Caller, o, w.Key, w.Settings, w.Start, hs)
	return nil
}
