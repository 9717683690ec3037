// Package wait is how a call waits for a lock on a connection or in a transaction:
// round after round, each of which leaves the connection as it was, until one
// has the lock, the wait's time is over, or it turns out to be part of a deadlock.
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

// A Wait is one call's wait for one key at a time.
type Wait struct {
	statement.Session
	Caller   context.Context // the caller's own
	Limit    context.Context // ends with the caller's, or after MaxWait
	Settings settings.Call
	Key      advisory.Key
	Start    time.Time
	// Before is sent in front of each slice and of each look for a deadlock: it starts
	// a transaction that may be started over, so that nobody waits for what is past.
	Before string

	alone bool // it waits in slices, so no transaction of the caller's is open
	pause time.Duration
	watch watch
	long  long
}

// ErrCanceled: an operator's pg_cancel_backend ended the wait.
var ErrCanceled = errors.New("the wait was canceled on the server, by pg_cancel_backend")

// Limit returns ctx bounded by MaxWait, for the wait alone.
func Limit(ctx context.Context, s settings.Call) (context.Context, context.CancelFunc) {
	if s.MaxWait == nil || *s.MaxWait == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, *s.MaxWait)
}

// OneTry reports whether the options allow for no wait at all.
func OneTry(s settings.Call) bool { return s.MaxWait != nil && *s.MaxWait == 0 }

// Until calls round until it has the lock or fails. If the wait's time ends first,
// the error is a *advisory.NotAcquiredError.
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
			err = w.lookForDeadlock()
		}
		if err != nil {
			w.holders() // this session no longer waits
			return err
		}
		w.long.look(w.Caller, w.Settings.Observer, w.Key, w.Settings, w.Start)
	}
}

// Exec sends a statement of the wait, marked as such for [lockfn.Deadlock].
func (w *Wait) Exec(text string) (int64, error) {
	return w.Session.Exec(lockfn.Waits(w.Key, w.Settings.Mode) + text)
}

// Run is [Wait.Exec] of a statement that has no answer.
func (w *Wait) Run(text string) error {
	return w.Session.Run(lockfn.Waits(w.Key, w.Settings.Mode) + text)
}

// Slice is a round that waits on the server, for at most length, which is not 0. It takes
// the lock at session level.
func (w *Wait) Slice(length time.Duration) (granted bool, err error) {
	if end, ok := w.Limit.Deadline(); ok {
		length = min(length, time.Until(end))
	}
	if due, ok := w.lookDue(); ok {
		length = min(length, time.Until(due))
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

// NotAcquired is the error of a wait whose time is over. It asks who holds the key.
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
