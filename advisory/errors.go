package advisory

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// The errors of this module. Test for them with errors.Is. The text of the returned error adds
// the operation, the key and the details.
var (
	// ErrNotAcquired: the call stopped waiting before the lock was free.
	ErrNotAcquired = errors.New("pgadvisory: lock not acquired")
	// ErrLost: the lock was held, and ended with the session that held it.
	ErrLost = errors.New("pgadvisory: lock lost")
	// ErrNotHeld: the lock to release is not held.
	ErrNotHeld = errors.New("pgadvisory: lock not held")
	// ErrAlreadyHeld: the caller holds the key already. It means one of these:
	//
	//   - Package sqlconn took the key on this connection.
	//   - Package xact took the key in this transaction.
	//   - A Locker got the ctx of work that runs under the key in its own Do.
	//
	// PostgreSQL would grant the key to the session a second time, and require a second unlock.
	//
	// Package sqlconn and package xact do not know each other's locks, nor those of other
	// connections. Inside the work under a key, sqlconn.Do and xact.Do of the same key open
	// another connection and wait for their own caller. Give them [MaxWait] or a ctx that ends.
	ErrAlreadyHeld = errors.New("pgadvisory: lock already held")
	// ErrDeadlock: two or more sessions wait for each other, and this call was chosen to fail.
	ErrDeadlock = errors.New("pgadvisory: deadlock")
	// ErrLockTableFull: the server's lock table is full (SQLSTATE 53200).
	ErrLockTableFull = errors.New("pgadvisory: lock table full")
	// ErrInvalidKey: the key is the zero Key, which [Name] returns for a missing part; or the
	// text is none that [ParseKey] can read.
	ErrInvalidKey = errors.New("pgadvisory: invalid key")
	// ErrClosed: the Locker is closed.
	ErrClosed = errors.New("pgadvisory: the Locker is closed")
	// ErrStaleSnapshot: the transaction is REPEATABLE READ or SERIALIZABLE, and its snapshot may
	// be older than the lock.
	ErrStaleSnapshot = errors.New("pgadvisory: stale snapshot")
	// ErrUnsafeServer: on this server, or through this pooler, the lock would not exclude others.
	ErrUnsafeServer = errors.New("pgadvisory: unsafe server")
	// ErrUnconfirmed: no standby has confirmed in time that the server is still the primary. Only a
	// Locker that requires it, by locker.WithStandby, returns it: as the cause of a loss, which is
	// also [ErrLost], and where no lock can be given out.
	ErrUnconfirmed = errors.New("pgadvisory: primary not confirmed by a standby")
)

// A NotAcquiredError reports a wait that ended without the lock. It matches [ErrNotAcquired], and
// ctx's error if ctx ended the wait.
type NotAcquiredError struct {
	Key     Key
	Mode    Mode
	Waited  time.Duration
	Holders []Holder // at the end of the wait; empty if there was none, or the query failed
	// Cause is ctx's error if ctx ended the wait. It is, or wraps besides, an error if the server did
	// not answer and the connection was discarded, or the error of a Locker's last attempt to open a
	// session if it had none when the wait ended. Else it is nil.
	Cause error
}

func (e *NotAcquiredError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %s (%v) after %v", ErrNotAcquired, e.Key, e.Mode, e.Waited.Round(time.Millisecond))
	if e.Cause != nil {
		fmt.Fprintf(&b, ": %v", e.Cause)
	}
	if len(e.Holders) > 0 {
		b.WriteString("; held by " + joined(e.Holders))
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
	// Standby: the server is a hot standby. Its locks do not exclude those on the primary.
	Standby UnsafeReason = "hot standby"
	// Pooler: a proxy shares one server session between several clients, statement by statement
	// or transaction by transaction.
	Pooler UnsafeReason = "transaction pooling"
	// NotPostgreSQL: version() names another database, and it was not tried whether its functions
	// lock, or it lacks what locks need or an option requires. One whose session-level functions
	// lock is not refused.
	NotPostgreSQL UnsafeReason = "not PostgreSQL"
	// NoExclusion: two connections of a pool were granted the same lock. They may lead to
	// different servers, or the server is a compatible database that accepts the function which
	// Detail names but locks nothing.
	NoExclusion UnsafeReason = "locks exclude nobody"
	// StalePrimary: the server is an old primary. The pool has led to a newer timeline of the same
	// system before, which began when a standby was promoted.
	StalePrimary UnsafeReason = "old primary"
	// NoStandby: the Locker requires locker.WithStandby, and synchronous_standby_names is empty, so
	// that no standby confirms what the server commits.
	NoStandby UnsafeReason = "no synchronous standby"
)

// An UnsafeServerError matches [ErrUnsafeServer] and gives the reason.
type UnsafeServerError struct {
	Reason UnsafeReason
	Detail string // what the check found, and what to do
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
