package lockfn

import (
	"database/sql/driver"
	"errors"
	"io"
	"net"
)

// SQLState returns the SQLSTATE of a server's error, or "" for any other.
// It imports no driver: the error types of lib/pq and pgx have this method.
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
)

// Refused reports whether err is the server's word that the statement did not
// run, so that no lock can have come of it.
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

// Canceled reports whether somebody cancelled the statement: pg_cancel_backend.
func Canceled(err error) bool { return SQLState(err) == queryCanceled }

// NotSupported reports whether the server lacks what the statement asked for, as a hot standby
// lacks transactions that may write, which lib/pq asks for, and SERIALIZABLE ones.
func NotSupported(err error) bool { return SQLState(err) == featureNotSupported }

// Gone reports whether err is of a connection that had ended, or ended in the middle of the
// statement. Unlike [LinkGone] it is false for an error of which that is not known.
func Gone(err error) bool {
	if s := SQLState(err); s != "" {
		return LinkGone(err) && s != cannotConnectNow
	}
	if link, ok := errors.AsType[*net.OpError](err); ok {
		return link.Op != "dial"
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed)
}

// LinkGone reports whether after err the session can be expected to be gone: it is no
// error of the server's, or one with which the server ends the session.
func LinkGone(err error) bool {
	s := SQLState(err)
	return len(s) != 5 || s[:2] == "08" || s[:3] == "57P" || s == "25P03" || s == "25P04"
}

// NotPrepared reports whether a statement that the driver had prepared was not on the session, or
// one of another client's was: a proxy changed the session.
func NotPrepared(err error) bool {
	switch SQLState(err) {
	case "26000", "42P05", "08P01":
		return true
	}
	return false
}
