package xact

import (
	"context"
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

// An ownTx is a transaction that Do has begun and may restart.
//
// If the first try succeeds under READ COMMITTED, ownTx takes the lock at transaction level.
// Otherwise it takes the lock at session level, which outlasts the transaction. Then it restarts
// the transaction and converts the lock to one of transaction level. So the transaction's snapshot
// is younger than the lock, and a wait leaves neither settings nor a snapshot in the transaction.
type ownTx struct {
	ctx      context.Context
	tx       Tx
	cancel   context.CancelFunc // of the transaction's context
	key      advisory.Key
	settings settings.Call
	start    time.Time
	since    time.Time // when it got the lock

	hung  bool // the last call got no answer
	doubt bool // the session may hold the lock
}

// lock takes the lock, in bounded time after the end of ctx or of MaxWait.
func (o *ownTx) lock(waits bool) (granted bool, err error) {
	if !waits {
		o.settings.MaxWait = nil // a try does not wait
	}
	limit, cancel := wait.Limit(o.ctx, o.settings)
	defer cancel()
	late, stop := bound.Context(limit)
	defer stop()
	o.doubt = true
	type answer struct {
		granted bool
		holders []advisory.Holder
	}
	a, err := bound.Call(late, func(late context.Context) (answer, error) {
		w := &wait.Wait{Session: statement.Given(late, o.tx, drivers.OfTx(o.tx)), Caller: o.ctx, Limit: limit, Settings: o.settings, Key: o.key, Start: o.start}
		granted, doubt, err := acquire(w, waits)
		if !doubt && late.Err() == nil {
			o.doubt = false
		}
		a := answer{granted: granted}
		if err == nil && !granted && o.settings.HoldersTo != nil {
			a.holders, err = wait.Ask(w.Session, o.key, false) // the transaction is over
		}
		return a, err
	}, nil, func(answer, error) {})
	granted = a.granted
	o.settings.SetHolders(a.holders)
	o.hung = errors.Is(err, bound.ErrNoAnswer)
	if err == nil && granted && o.ctx.Err() != nil {
		err = bound.Cause(o.ctx)
	}
	if waits {
		err = wait.Ended(o.ctx, limit, o.key, o.settings.Mode, o.start, err)
	}
	err = bound.Ended(o.ctx, err)
	if err == nil && granted {
		held.OwnerOf(given.Inner(o.tx)).Add(o.settings.Mode, o.key)
	}
	return granted, err
}

// acquire takes the lock. doubt is true if the session may hold the lock at session level.
func acquire(w *wait.Wait, waits bool) (granted, doubt bool, err error) {
	k, s := w.Key, w.Settings
	rows, err := w.Session.Exec(lockfn.TryXactOwn(k, s.Mode, s.AnyIsolation))
	switch {
	case err != nil:
		return false, true, err
	case rows == lockfn.XactStandby:
		return false, false, lockfn.ErrStandby
	case rows == lockfn.XactGranted:
		return true, false, nil
	case rows == lockfn.XactSession:
		return restartWithLock(w)
	case !waits:
		return false, false, nil
	case wait.OneTry(s):
		return false, false, w.NotAcquired()
	}

	if rows, err = w.Exec(lockfn.SliceLimit(true)); err != nil {
		return false, false, err
	}
	length := lockfn.SliceLength(rows)
	atXact := false
	w.Before = lockfn.RollbackAndChain + "; "
	err = w.Until(func() (bool, error) {
		if length > 0 {
			return w.Slice(length)
		}
		// So that no snapshot delays others during the pause.
		if err := w.Run(lockfn.RollbackAndChain); err != nil {
			return false, err
		}
		w.Pause()
		rows, err := w.Exec(lockfn.TryXactOwn(k, s.Mode, s.AnyIsolation))
		if err == nil && rows == lockfn.XactStandby {
			err = lockfn.ErrStandby
		}
		atXact = rows == lockfn.XactGranted
		return rows != lockfn.XactBusy, err
	})
	switch {
	case err != nil:
		return false, !wait.HoldsNothing(err), err
	case atXact:
		return true, false, nil
	}
	return restartWithLock(w)
}

// restartWithLock restarts the transaction and converts the session-level lock to transaction level.
func restartWithLock(w *wait.Wait) (granted, doubt bool, err error) {
	rows, err := w.Session.Exec(lockfn.Restart(w.Key, w.Settings.Mode))
	if err == nil && rows != 1 {
		err = fmt.Errorf("%w before the transaction could take it: begin again", advisory.ErrLost)
	}
	return err == nil, err != nil, err
}

// rollback ends the transaction, in bounded time, so that its session holds nothing.
func (o *ownTx) rollback() {
	roll := func() {
		late, stop := context.WithTimeout(context.WithoutCancel(o.ctx), bound.Grace)
		defer stop()
		bound.Call(late, func(late context.Context) (none struct{}, _ error) {
			if o.doubt {
				o.release(statement.Session{Ctx: late, On: o.tx})
			}
			return none, o.tx.Rollback()
		}, o.cancel, func(struct{}, error) {})
		o.cancel()
	}
	if o.hung {
		go roll()
	} else {
		roll()
	}
	o.reportReleased(nil)
}

// release makes sure that the session does not hold the lock. If it cannot, it terminates the
// session; for that no deadline applies.
func (o *ownTx) release(s statement.Session) {
	if err := s.Run(lockfn.RollbackAndChain); err == nil {
		if _, err := s.Exec(lockfn.UnlockIfHeld(o.key, o.settings.Mode)); err == nil {
			return
		}
	}
	s.Ctx = context.WithoutCancel(s.Ctx)
	s.Exec(lockfn.Terminate)
}

// commit commits, in bounded time after the end of ctx.
func (o *ownTx) commit() error {
	late, stop := bound.Context(o.ctx)
	defer stop()
	_, err := bound.Call(late, func(context.Context) (none struct{}, _ error) {
		return none, o.tx.Commit()
	}, o.cancel, func(struct{}, error) {})
	o.cancel()
	if errors.Is(err, bound.ErrNoAnswer) {
		err = bound.Ended(o.ctx, err)
	}
	o.reportReleased(err)
	return err
}

// reportReleased sends the Released event, if the lock was held.
func (o *ownTx) reportReleased(err error) {
	if o.settings.Observer == nil || o.since.IsZero() {
		return
	}
	o.settings.Observer.Observe(o.ctx, advisory.Event{
		Kind: advisory.Released, Key: o.key, Mode: o.settings.Mode, Label: o.settings.Label, Held: time.Since(o.since), Err: err,
	})
}
