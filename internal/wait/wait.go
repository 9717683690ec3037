// Package wait implements the wait of a call for a lock, on a connection or in a transaction. A
// wait is a loop of rounds, each of which leaves the connection unchanged. It ends when a round
// takes the lock, when its time is over, or when it is part of a deadlock.
package wait

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/settings"
	"github.com/pgadvisory/pgadvisory/internal/statement"
)

// A Wait is the wait of one call, for one key at a time.
type Wait struct {
	statement.Session
	Caller   context.Context // the caller's own
	Limit    context.Context // ends with the caller's, or after MaxWait
	Settings settings.Call
	Key      advisory.Key
	Start    time.Time
	// Before precedes each slice and each check for a deadlock. It restarts the transaction, so
	// that no other session waits for the past of it.
	Before string
	// InTx: a transaction of the caller's is open, and stays.
	InTx bool

	alone bool // the wait is in slices, so no transaction of the caller is open
	pause time.Duration
	watch deadlockWatch
	long  longEvents
}

// ErrCanceled: a call of pg_cancel_backend ended the wait.
var ErrCanceled = errors.New("the wait was canceled on the server, by pg_cancel_backend")

// Limit returns ctx limited by MaxWait, for the wait only.
func Limit(ctx context.Context, s settings.Call) (context.Context, context.CancelFunc) {
	if s.MaxWait == nil || *s.MaxWait == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, *s.MaxWait)
}

// OneTry reports whether the options allow no wait: MaxWait is 0.
func OneTry(s settings.Call) bool { return s.MaxWait != nil && *s.MaxWait == 0 }

// Until repeats round until it returns true or an error. If the wait's time ends first, the error
// is a *advisory.NotAcquiredError.
func (w *Wait) Until(round func() (granted bool, err error)) error {
	for {
		if w.Limit.Err() != nil {
			return w.NotAcquired()
		}
		granted, err := round()
		if granted && err == nil {
			return nil
		}
		if err == nil {
			err = w.checkDeadlock()
		}
		if err == nil {
			err = w.reportLong()
		}
		if err != nil {
			w.holders() // this replaces the text in pg_stat_activity: the session no longer waits
			return err
		}
	}
}

// Exec sends a statement of the wait, with the comment by which [lockfn.Deadlock] finds waiters.
func (w *Wait) Exec(text string) (int64, error) {
	return w.Session.Exec(lockfn.Waits(w.Key, w.Settings.Mode) + text)
}

// Run is [Wait.Exec] for a statement that has no answer.
func (w *Wait) Run(text string) error {
	return w.Session.Run(lockfn.Waits(w.Key, w.Settings.Mode) + text)
}

// Slice is a round that waits on the server, for at most length, which is not 0. It takes
// the lock at session level.
func (w *Wait) Slice(length time.Duration) (granted bool, err error) {
	if end, ok := w.Limit.Deadline(); ok {
		length = min(length, time.Until(end))
	}
	if due, ok := w.checkDue(); ok {
		length = min(length, time.Until(due))
	}
	if w.Settings.Observer != nil && w.long == (longEvents{}) { // later events come at the end of a slice
		length = min(length, w.long.left(w.Settings, w.Start))
	}
	length = max(length, time.Millisecond)
	w.alone = true
	rows, err := w.Exec(w.Before + lockfn.Slice(w.Key, w.Settings.Mode, length))
	if err != nil {
		return false, err
	}
	switch rows {
	case lockfn.SliceGranted:
		return true, nil
	case lockfn.SliceDeadlock:
		return false, fmt.Errorf("%w, found by the server", advisory.ErrDeadlock)
	case lockfn.SliceCanceled:
		return false, ErrCanceled
	}
	return false, nil
}

// NotAcquired returns the error of a wait whose time is over. It asks the server who holds the key.
func (w *Wait) NotAcquired() error {
	e := &advisory.NotAcquiredError{
		Key:     w.Key,
		Mode:    w.Settings.Mode,
		Waited:  time.Since(w.Start),
		Holders: w.holders(),
	}
	if w.Caller.Err() != nil {
		e.Cause = bound.Cause(w.Caller)
	}
	return e
}
