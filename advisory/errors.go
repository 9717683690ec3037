package advisory

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// The errors of this module. Test for them with errors.Is; the error at hand
// says more.
var (
	// ErrNotAcquired: the wait for the lock ended before it was free.
	ErrNotAcquired = errors.New("pgadvisory: lock not acquired")
	// ErrLost: the lock was held and is gone, with the session that held it.
	ErrLost = errors.New("pgadvisory: lock lost")
	// ErrNotHeld: there is nothing to release.
	ErrNotHeld = errors.New("pgadvisory: lock not held")
	// ErrAlreadyHeld: the connection has the key already, by package sqlconn; or the
	// transaction has it, by package xact; or a Locker was given the ctx of work that
	// runs under the key in a Locker's Do. PostgreSQL would grant it to the session a
	// second time, and ask for a second unlock.
	//
	// Nothing is known across the two packages, nor across connections: inside the
	// work under a key, sqlconn.Do and xact.Do of that key open another connection
	// and wait for their own caller. Give them [MaxWait] or a ctx that ends.
	ErrAlreadyHeld = errors.New("pgadvisory: lock already held")
	// ErrDeadlock: two or more wait for each other, and this one was told to give way.
	ErrDeadlock = errors.New("pgadvisory: deadlock")
	// ErrLockTableFull: the server's lock table has no room (SQLSTATE 53200).
	ErrLockTableFull = errors.New("pgadvisory: lock table full")
	// ErrInvalidKey: the zero Key, which is what [Name] makes of a missing part;
	// or a text that [ParseKey] cannot read.
	ErrInvalidKey = errors.New("pgadvisory: invalid key")
	// ErrClosed: the Locker is closed.
	ErrClosed = errors.New("pgadvisory: closed")
	// ErrStaleSnapshot: under REPEATABLE READ and SERIALIZABLE the transaction's
	// snapshot may be older than the lock.
	ErrStaleSnapshot = errors.New("pgadvisory: stale snapshot")
	// ErrUnsafeServer: on this server, or through this pooler, the lock would be fake.
	ErrUnsafeServer = errors.New("pgadvisory: unsafe server")
)

// A NotAcquiredError tells of a wait that ended without the lock. It is
// [ErrNotAcquired], and ctx's error if ctx ended the wait.
type NotAcquiredError struct {
	Key     Key
	Mode    Mode
	Waited  time.Duration
	Holders []Holder // as seen at the end of the wait; empty if nobody was, or they could not be asked for
	Cause   error    // ctx's error if ctx ended the wait; or that no answer came, and the connection was given up; else nil
}

func (e *NotAcquiredError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %s (%v) after %v", ErrNotAcquired, e.Key, e.Mode, e.Waited.Round(time.Millisecond))
	if e.Cause != nil {
		fmt.Fprintf(&b, ": %v", e.Cause)
	}
	for i, h := range e.Holders {
		if i == 0 {
			b.WriteString("; held by ")
		} else {
			b.WriteString(" and ")
		}
		b.WriteString(h.String())
	}
	return b.String()
}

// Is reports whether target is [ErrNotAcquired].
func (e *NotAcquiredError) Is(target error) bool { return target == ErrNotAcquired }

// Unwrap returns Cause.
func (e *NotAcquiredError) Unwrap() error { return e.Cause }

// UnsafeReason says why a server is unsafe for advisory locks.
type UnsafeReason string

const (
	// Standby: locks taken on a hot standby are not seen by the primary.
	Standby UnsafeReason = "hot standby"
	// Pooler: a proxy hands one backend to several clients between statements.
	Pooler UnsafeReason = "transaction pooling"
	// NotPostgreSQL: a compatible database that accepts the functions and locks nothing.
	NotPostgreSQL UnsafeReason = "not PostgreSQL"
	// NoExclusion: two connections of a pool were granted the same lock. They may be
	// connected to different servers.
	NoExclusion UnsafeReason = "locks exclude nobody"
)

// An UnsafeServerError is [ErrUnsafeServer] with its reason.
type UnsafeServerError struct {
	Reason UnsafeReason
	Detail string // what was seen
}

func (e *UnsafeServerError) Error() string {
	s := fmt.Sprintf("%v: %s", ErrUnsafeServer, e.Reason)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Is reports whether target is [ErrUnsafeServer].
func (e *UnsafeServerError) Is(target error) bool { return target == ErrUnsafeServer }
