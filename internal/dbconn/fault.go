package dbconn

import (
	"context"
	"database/sql/driver"
	"io"
	"net"
	"strings"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
)

// A Fault is what the error of an attempt to connect says about the next attempt.
type Fault uint8

const (
	// Unclear: the set-up is wrong, or the server is not ready yet. An example is a hot standby,
	// which may be about to be promoted.
	Unclear Fault = iota
	// Passing: the server cannot be reached, starts, stops or has no free connection.
	Passing
	// Lasting: no attempt succeeds until somebody changes the set-up.
	Lasting
)

// FaultOf returns the fault of err, which is not nil. An error may join those of several hosts: one
// lasting fault among them makes the whole a lasting one, and one that passes makes it clear.
func FaultOf(err error) Fault {
	worst := ownFault(err)
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			worst = max(worst, FaultOf(inner))
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if inner != nil {
				worst = max(worst, FaultOf(inner))
			}
		}
	}
	return worst
}

// ownFault returns the fault of err alone, without what it wraps.
func ownFault(err error) Fault {
	switch e := err.(type) {
	case interface{ SQLState() string }:
		return stateFault(e.SQLState())
	case *advisory.UnsafeServerError:
		switch e.Reason {
		case advisory.Pooler, advisory.NotPostgreSQL, advisory.NoExclusion:
			return Lasting
		}
	case *net.OpError, *net.DNSError:
		return Passing
	case net.Error: // errors of files are, too
		if e.Timeout() {
			return Passing
		}
	}
	switch err {
	case io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, driver.ErrBadConn, context.Canceled, bound.ErrNoAnswer, advisory.ErrUnconfirmed:
		return Passing
	}
	if strings.HasSuffix(err.Error(), poolClosed) {
		return Lasting
	}
	return Unclear
}

// poolClosed is the error of a closed pool, for which database/sql has no name.
const poolClosed = "sql: database is closed"

// stateFault returns the fault of a server's error.
func stateFault(state string) Fault {
	if len(state) != 5 {
		return Unclear
	}
	switch state[:2] {
	case "28", "3D", "42": // password, pg_hba.conf; no such database; no CONNECT right
		return Lasting
	case "08", "53", "58": // connection, also of poolers; no free connection, memory or disk; system
		return Passing
	}
	if state[:3] == "57P" { // starts, stops, has crashed
		return Passing
	}
	return Unclear
}
