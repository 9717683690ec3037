// Package settings reads the options of a call.
package settings

import (
	"errors"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/given"
	"github.com/pgadvisory/pgadvisory/internal/option"
)

// A Call is what the options of one call come to.
type Call struct {
	Mode      advisory.Mode
	Observer  advisory.Observer
	HoldersTo *[]advisory.Holder // nil: nobody asks
	option.Plain
}

// Read reads the options of a call, each by apply, a method of its interface. Of two of a kind the
// last counts. The error names an option that makes no sense: a nil, a negative time, an unknown
// Mode. The Call then still has what was read, for the words of the caller's error.
func Read[O any](apply func(O, *option.Call), opts []O) (Call, error) {
	var set option.Call
	isNil := Apply(opts, func(o O) { apply(o, &set) })
	c := Call{Mode: advisory.Mode(set.Mode), Plain: set.Plain}
	c.Observer, _ = set.Observer.(advisory.Observer)
	if c.HoldersTo, _ = set.HoldersTo.(*[]advisory.Holder); c.HoldersTo != nil {
		*c.HoldersTo = nil
	}
	switch {
	case isNil != nil:
		return c, fmt.Errorf("pgadvisory: %w", isNil)
	case set.HoldersTo != nil && c.HoldersTo == nil:
		return c, errors.New("pgadvisory: HoldersTo was given a nil pointer")
	case c.Mode > advisory.Shared:
		return c, fmt.Errorf("pgadvisory: %v is not a mode", c.Mode)
	case c.MaxWait != nil && *c.MaxWait < 0:
		return c, fmt.Errorf("pgadvisory: MaxWait(%v) is negative", *c.MaxWait)
	case c.WaitingAfter < 0:
		return c, NegativeWaitingAfter(c.WaitingAfter)
	case c.HoldAtLeast < 0:
		return c, fmt.Errorf("pgadvisory: HoldAtLeast(%v) is negative", c.HoldAtLeast)
	}
	return c, CheckObserver(c.Observer)
}

// SetHolders sets what HoldersTo points to, if the call has that option.
func (c Call) SetHolders(hs []advisory.Holder) {
	if c.HoldersTo != nil {
		*c.HoldersTo = hs
	}
}

// NegativeWaitingAfter returns the error of a negative time.
func NegativeWaitingAfter(d time.Duration) error {
	return fmt.Errorf("pgadvisory: WithWaitingAfter(%v) is negative", d)
}

// Apply applies the options up to the first that is nil, of which the error says which it is.
func Apply[O any](opts []O, apply func(O)) error {
	for i, o := range opts {
		if given.IsNil(o) {
			return fmt.Errorf("option %d of %d is nil", i+1, len(opts))
		}
		apply(o)
	}
	return nil
}

// CheckObserver returns an error if o is a nil in an interface.
func CheckObserver(o advisory.Observer) error {
	if o != nil && given.IsNil(o) {
		return fmt.Errorf("pgadvisory: WithObserver was given a nil %T", o)
	}
	return nil
}

// Conn reads the options of a call of package sqlconn.
func Conn(opts []advisory.ConnOption) (Call, error) {
	return Read(advisory.ConnOption.ApplyConn, opts)
}

// Tx reads the options of a call of package xact on a transaction that has begun.
func Tx(opts []advisory.TxOption) (Call, error) { return Read(advisory.TxOption.ApplyTx, opts) }

// Locker reads the options of a call of a Locker.
func Locker(opts []advisory.LockerOption) (Call, error) {
	return Read(advisory.LockerOption.ApplyLocker, opts)
}

// CheckKeys returns an error if there are no keys, or if one is the zero Key.
func CheckKeys(keys ...advisory.Key) error {
	if len(keys) == 0 {
		return errors.New("no keys were given")
	}
	for _, k := range keys {
		if k.IsZero() {
			return advisory.ErrInvalidKey
		}
	}
	return nil
}
