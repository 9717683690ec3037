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
	"github.com/pgadvisory/pgadvisory/internal/given"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// Locks returns every advisory lock of this database, held and waited for. The order is by key, for
// each key first the holders and then the waiters, the longest wait first. It sends one statement,
// which takes one or two tenths of a second for ten thousand locks.
//
// Locks of extensions are left out: see [Foreign].
//
// Waits of this library that are between two tries are not to be seen: see package xact.
// One that is made in slices begins anew with each slice, so its Since is young.
//
//   - A wait by polling is not listed while it is between two tries; see package xact.
//   - A wait in slices begins anew with each slice, so its Since is recent.
//
// If the server's lock table is full, Locks returns the locks without the names of roles. That
// requires an open connection that has queried the server before: the server has no room for a new
// one.
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
	slices.SortFunc(locks, compareLocks) // before connect, so that WaitedForBy is in this order
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

// query runs a query and calls row for each row.
func query(ctx context.Context, db DB, text string, args []any, row func(*sql.Rows) error) error {
	switch {
	case ctx == nil:
		return given.ErrNilCtx
	case given.IsNil(db):
		return errors.New("db is nil")
	}
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
		return max(r.Now.Sub(t), 1) // 0 means that there is none
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

// compareLocks sorts by key, and puts holders before waiters, the longest wait first.
func compareLocks(a, b Lock) int {
	return cmp.Or(compareKeys(a.Key, b.Key), -compareBools(a.Granted, b.Granted), a.Since.Compare(b.Since), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Mode, b.Mode))
}

// compareKeys puts keys of the bigint space before pairs.
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

// connect sets WaitsFor and WaitedForBy of each lock.
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
