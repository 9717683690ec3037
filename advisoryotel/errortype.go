package advisoryotel

import (
	"context"
	"errors"
	"reflect"

	"github.com/pgadvisory/pgadvisory/advisory"
)

type errorName struct {
	err  error
	name string
}

var (
	causes = []errorName{
		{advisory.ErrDeadlock, "deadlock"},
		{advisory.ErrLockTableFull, "lock_table_full"},
		{advisory.ErrUnsafeServer, "unsafe_server"},
		{advisory.ErrStaleSnapshot, "stale_snapshot"},
		{advisory.ErrAlreadyHeld, "already_held"},
		{context.DeadlineExceeded, "timeout"},
		{context.Canceled, "canceled"},
	}
	// The SQLSTATE says more than these.
	states = []errorName{
		{advisory.ErrLost, "lost"},
		{advisory.ErrClosed, "closed"},
		{advisory.ErrNotHeld, "not_held"},
		{advisory.ErrUnconfirmed, "unconfirmed"},
	}
)

// errorType returns the class of err, of low cardinality, or "" if err is nil or means that others hold
// the lock.
func errorType(err error) string {
	if err == nil {
		return ""
	}
	if busy, ok := errors.AsType[*advisory.NotAcquiredError](err); ok && busy.Cause == nil {
		return ""
	}
	if name := nameOf(err, causes); name != "" {
		return name
	}
	if state := sqlState(err); state != "" {
		return state
	}
	if name := nameOf(err, states); name != "" {
		return name
	}
	return typeName(err)
}

func nameOf(err error, names []errorName) string {
	for _, n := range names {
		if errors.Is(err, n.err) {
			return n.name
		}
	}
	return ""
}

// sqlState returns the SQLSTATE of the server's error in err, or "". The errors of lib/pq and pgx have
// the method.
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// typeName returns the type of the innermost error, such as "*net.OpError".
func typeName(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return reflect.TypeOf(err).String()
		}
		err = inner
	}
}
