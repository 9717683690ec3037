package xact

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/drivers"
	"github.com/pgadvisory/pgadvisory/internal/given"
	"github.com/pgadvisory/pgadvisory/internal/held"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/settings"
	"github.com/pgadvisory/pgadvisory/internal/statement"
	"github.com/pgadvisory/pgadvisory/internal/wait"
)

// A Tx is a transaction: *sql.Tx, *sqlx.Tx, bun.Tx, ent's generated Tx. A *sql.DB is not a Tx: a
// transaction-level lock that is taken outside a transaction ends with its own statement.
//
// Do not use tx elsewhere while a call is in progress: a wait that ends without the lock rolls back to
// its savepoint. That undoes what another goroutine wrote meanwhile, and the commit reports no error.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	Commit() error
	Rollback() error
}

// A call is one call of this package in a transaction of the caller.
type call struct {
	statement.Session
	caller, limit context.Context
	settings      settings.Call
	start         time.Time
	owner         held.Owner
	taken         advisory.Key // after a try: a key that was not free
}

// runCall runs f for a call in tx and returns the keys that f took. It returns in bounded time
// after the end of ctx or of MaxWait.
func runCall(ctx context.Context, tx Tx, op string, keys []advisory.Key, opts []advisory.TxOption, waits bool, f func(*call) ([]advisory.Key, error)) ([]advisory.Key, error) {
	start := time.Now()
	s, err := read(ctx, settings.Tx, keys, opts)
	if err == nil && given.IsNil(tx) {
		err = errors.New("tx is nil")
	}
	if err != nil {
		return nil, lockfn.Error(op, firstKey(keys), s.Mode, err)
	}
	if !waits {
		s.MaxWait = nil // a try does not wait
	}
	limit, cancel := wait.Limit(ctx, s)
	defer cancel()
	c := call{caller: ctx, limit: limit, settings: s, start: start}
	a, err := c.run(tx, f)
	s.SetHolders(a.holders)
	if waits {
		err = wait.Ended(ctx, limit, firstKey(keys), s.Mode, start, err)
	}
	err = lockfn.Error(op, firstKey(keys), s.Mode, bound.Ended(ctx, err))
	for _, k := range a.got {
		wait.Observe(ctx, k, s, start, true, nil)
	}
	if len(a.got) == 0 {
		wait.Observe(ctx, firstKey(keys), s, start, false, err)
	}
	return a.got, err
}

// An answer is what a call has come to: the keys that it took, or who holds the key that was not free.
type answer struct {
	got     []advisory.Key
	holders []advisory.Holder
}

// run runs f on tx, in bounded time after the end of the call's limit.
func (c call) run(tx Tx, f func(*call) ([]advisory.Key, error)) (answer, error) {
	if c.caller.Err() != nil {
		return answer{}, bound.Cause(c.caller)
	}
	late, stop := bound.Context(c.limit)
	defer stop()
	a, err := bound.Call(late, func(late context.Context) (a answer, err error) {
		c.Session = statement.Given(late, tx, drivers.OfTx(tx))
		c.owner = held.OwnerOf(given.Inner(tx))
		a.got, err = f(&c)
		if err == nil && len(a.got) == 0 && c.settings.HoldersTo != nil {
			a.holders, err = wait.Ask(c.Session, c.taken, true)
		}
		return a, err
	}, nil, func(answer, error) {})
	if err != nil {
		return answer{}, err
	}
	return a, nil
}

// read reads opts with the given function, and checks the keys.
func read[O any](ctx context.Context, options func([]O) (settings.Call, error), keys []advisory.Key, opts []O) (settings.Call, error) {
	s, err := options(opts)
	switch {
	case err != nil:
		return s, err
	case ctx == nil:
		return s, given.ErrNilCtx
	}
	return s, settings.CheckKeys(keys...)
}

// firstKey returns the key that events and errors name, or the zero Key if there is none.
func firstKey(keys []advisory.Key) advisory.Key {
	if len(keys) == 0 {
		return advisory.Key{}
	}
	return keys[0]
}

// alreadyHeld returns an error if this package took k in this transaction. It asks the server to
// confirm: a rollback to a savepoint may have released the lock.
func (c *call) alreadyHeld(k advisory.Key) error {
	m, ok := c.owner.Mode(k)
	if !ok {
		return nil
	}
	rows, err := c.Exec(lockfn.HoldsAny(k))
	if err != nil {
		return err
	}
	if rows == 0 {
		c.owner.Remove(k)
		return nil
	}
	return fmt.Errorf("%w by this transaction: it holds %s (%v) until it ends", advisory.ErrAlreadyHeld, k, m)
}

var errStale = fmt.Errorf("%w: the transaction is REPEATABLE READ or SERIALIZABLE and may not see what the last holder committed: use xact.Do, READ COMMITTED, or xact.AnyIsolation", advisory.ErrStaleSnapshot)
