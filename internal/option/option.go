// Package option holds what options set. Options have methods that take a *Call or a *Locker, so
// that only this module can make one. Package settings reads them.
package option

import (
	"database/sql"
	"time"
)

// A Call is what the options of one call set. Mode is an advisory.Mode, Observer an
// advisory.Observer and HoldersTo a *[]advisory.Holder, which this package cannot import.
type Call struct {
	Mode      uint8
	Observer  any
	HoldersTo any
	Plain
}

// Plain is what options set and calls read as it is.
type Plain struct {
	MaxWait      *time.Duration // nil: until ctx ends
	Label        string
	WaitingAfter time.Duration // 0: the default

	// Of package xact.
	TxOptions    *sql.TxOptions
	AnyIsolation bool

	// Of package sqlconn.
	PlainWait     bool
	SessionPooler bool

	// Of a Locker.
	HoldAtLeast time.Duration
}

// A Locker is what the options of locker.New set.
type Locker struct {
	Observer        any
	WaitingAfter    time.Duration // of calls that do not set it; 0: the default
	Failover        time.Duration
	Heartbeat       time.Duration
	Fencing         bool
	TokenEpoch      int
	MaxConns        int
	ApplicationName string
	NoServerCheck   bool
	Standby         bool
	StandbyIfNamed  bool // with Standby: and does without while the names are empty
}

// Set is an option of every call. An option that embeds it fits where its interface says.
type Set func(*Call)

func (f Set) ApplyConn(c *Call)      { f(c) }
func (f Set) ApplyTx(c *Call)        { f(c) }
func (f Set) ApplyBegin(c *Call)     { f(c) }
func (f Set) ApplyLocker(c *Call)    { f(c) }
func (f Set) ApplySemaphore(c *Call) { f(c) }
