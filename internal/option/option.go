// Package option holds what options set. Options have methods that take a *Call or a *Locker, so
// that only this module can make one. Package settings reads them.
package option

import (
	"database/sql"
	"time"
)

// A Call is what the options of one call set. Mode is an advisory.Mode and Observer an
// advisory.Observer, which this package cannot import.
type Call struct {
	Mode     uint8
	Observer any
	Plain
}

// Plain is what options set and calls read as it is.
type Plain struct {
	MaxWait *time.Duration // nil: until ctx ends
	Label   string

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
	Failover        time.Duration
	Heartbeat       time.Duration
	Fencing         bool
	MaxConns        int
	ApplicationName string
	NoServerCheck   bool
	Standby         bool
}

// Set is an option of every call. An option that embeds it fits where its interface says.
type Set func(*Call)

func (f Set) ApplyConn(c *Call)      { f(c) }
func (f Set) ApplyTx(c *Call)        { f(c) }
func (f Set) ApplyBegin(c *Call)     { f(c) }
func (f Set) ApplyLocker(c *Call)    { f(c) }
func (f Set) ApplySemaphore(c *Call) { f(c) }
