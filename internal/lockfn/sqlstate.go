package lockfn

import (
	"database/sql/driver"
	"errors"
	"io"
	"net"
)

// SQLState returns the SQLSTATE of a server's error, or "" for any other error. It imports no
// driver: the error types of lib/pq and pgx have this method.
func SQLState(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// SQLSTATEs (PostgreSQL manual, "PostgreSQL Error Codes").
const (
	featureNotSupported = "0A000"
	InFailedTransaction = "25P02"
	deadlockDetected    = "40P01"
	outOfMemory         = "53200" // also: the lock table is full
	queryCanceled       = "57014"
	cannotConnectNow    = "57P03"
	protocolViolation   = "08P01" // PgBouncer's for all that it refuses, such as at query_wait_timeout
)

// Refused reports whether err means that the statement did not run, so that it cannot have taken a
// lock.
func Refused(err error) bool {
	s := SQLState(err)
	if len(s) != 5 {
		return false
	}
	switch s {
	case InFailedTransaction, deadlockDetected, outOfMemory:
		return true
	}
	return s[:2] == "42" || s[:2] == "0A" // no such function, no right to it, not supported
}

// Canceled reports whether the statement was cancelled, by pg_cancel_backend.
func Canceled(err error) bool { return SQLState(err) == queryCanceled }

// NotSupported reports whether the server does not support what the statement requires. A hot
// standby does not support transactions that may write, which lib/pq requests, and SERIALIZABLE
// ones.
func NotSupported(err error) bool { return SQLState(err) == featureNotSupported }

// Gone reports whether err comes from a connection that had ended, or ended during the statement.
// Unlike [LinkGone] it returns false if err does not show that, as the refusal of a busy pooler does
// not.
func Gone(err error) bool {
	if s := SQLState(err); s != "" {
		return LinkGone(err) && s != cannotConnectNow && s != protocolViolation
	}
	if link, ok := errors.AsType[*net.OpError](err); ok {
		return link.Op != "dial"
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed)
}

// LinkGone reports whether the session is probably gone after err: err is no error of the server,
// or one with which the server ends the session.
func LinkGone(err error) bool {
	s := SQLState(err)
	return len(s) != 5 || s[:2] == "08" || s[:3] == "57P" || s == "25P03" || s == "25P04"
}

// Lacking reports whether the server does not have what the statement uses, such as a function or a
// table, or does not implement it.
func Lacking(err error) bool {
	switch SQLState(err) {
	case "42883", "42P01", "42703", "42704", "42601", featureNotSupported:
		return true
	}
	return false
}

// NotPrepared reports whether a statement that the driver had prepared was missing on the session,
// or was that of another client. In both cases a proxy changed the session.
func NotPrepared(err error) bool {
	switch SQLState(err) {
	case "26000", "42P05", protocolViolation:
		return true
	}
	return false
}
