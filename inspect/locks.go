package inspect

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// Locks lists every advisory lock of this database, held and waited for, by key: the
// holders first, then those who wait, the longest first. It is one statement, which takes a tenth of a second
// or two for ten thousand locks.
//
// Locks of extensions are left out: see [Foreign].
//
// Waits of this library that are between two tries are not to be seen: see package xact.
// One that is made in slices begins anew with each slice, so its Since is young.
//
// When the server's lock table is full it works without the names of roles, on a connection that is
// open already, and has looked at the server before; for a new one there is no room.
func Locks(ctx context.Context, db DB) ([]Lock, error) {
	locks, err := list(ctx, db, lockfn.Everybody)
	if err = lockfn.Meaning(err); errors.Is(err, advisory.ErrLockTableFull) {
		bare, err2 := list(ctx, db, lockfn.EverybodyBare)
		for i := range bare {
			bare[i].Hidden = append(bare[i].Hidden, "user")
		}
		if err2 == nil {
			locks, err = bare, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("pgadvisory: list the locks of the database: %w", err)
	}
	slices.SortFunc(locks, inOrder) // first, so that waiters are told in their order
	connect(locks)
	return locks, nil
}

func list(ctx context.Context, db DB, text string) (locks []Lock, err error) {
	err = query(ctx, db, text, nil, func(rows *sql.Rows) error {
		r, err := lockfn.ScanEverybody(rows)
		locks = append(locks, lockOf(r))
		return err
	})
	return locks, err
}

// query calls row for each row.
func query(ctx context.Context, db DB, text string, args []any, row func(*sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func lockOf(r lockfn.Row) Lock {
	age := func(t time.Time) time.Duration {
		if t.IsZero() {
			return 0
		}
		return max(r.Now.Sub(t), 1) // a zero says that there is none
	}
	l := Lock{
		Key: r.Key, Mode: r.Mode, Granted: r.Granted,
		PID: r.PID, Prepared: r.GID,
		User: r.User, Application: r.Application, Client: r.Client,
		State: r.State, StateSince: r.StateSince, StateAge: age(r.StateSince), WaitEvent: r.WaitEvent,
		Since: r.Since, Age: age(r.Since),
		TransactionAge: age(r.XactStart), QueryAge: age(r.Query),
		WaitsFor: r.Blockers,
	}
	if r.Hidden {
		l.Hidden = []string{"client", "state", "state_since", "state_age", "wait_event", "transaction_age", "query_age"}
		if l.Since.IsZero() {
			l.Hidden = append(l.Hidden, "since", "age")
		}
	}
	return l
}

// inOrder sorts by key, holders before those who wait, the longest first.
func inOrder(a, b Lock) int {
	return cmp.Or(compareKeys(a.Key, b.Key), -compareBools(a.Granted, b.Granted), a.Since.Compare(b.Since), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Mode, b.Mode))
}

// compareKeys puts numbers before pairs.
func compareKeys(a, b advisory.Key) int {
	an, aok := a.Int64()
	bn, bok := b.Int64()
	ac, ao, _ := a.Pair()
	bc, bo, _ := b.Pair()
	return cmp.Or(-compareBools(aok, bok), cmp.Compare(an, bn), cmp.Compare(ac, bc), cmp.Compare(ao, bo))
}

// compareBools puts false before true.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// connect fills in whom each session waits for, and who waits for each lock.
func connect(locks []Lock) {
	blockers := map[int][]int{}
	for _, l := range locks {
		if len(l.WaitsFor) > 0 {
			blockers[l.PID] = l.WaitsFor
		}
	}
	for i, l := range locks {
		locks[i].WaitsFor = blockers[l.PID]
	}
	type place struct {
		key advisory.Key
		pid int
	}
	behind := map[place][]int{}
	for _, l := range locks {
		if !l.Granted {
			for _, pid := range l.WaitsFor {
				p := place{l.Key, pid}
				behind[p] = append(behind[p], l.PID)
			}
		}
	}
	for i, l := range locks {
		locks[i].WaitedForBy = behind[place{l.Key, l.PID}]
	}
}
