package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// The exit codes, as listed in help and docs/cli.md. Those of pgadvisory itself are in the range of
// sysexits.h, as those of flock(1), so few commands use the same.
const (
	exitNo          = 1   // the answer is no: the lock was not free, nobody holds it, …
	exitUsage       = 64  // wrong flags, no such key form
	exitUnavailable = 69  // the server is not reachable or not usable
	exitSystem      = 71  // the system refused something
	exitLost        = 75  // the lock was lost while the command ran
	exitDenied      = 77  // wrong password, missing privileges
	exitCannotRun   = 126 // the command was found, but cannot be run
	exitNotFound    = 127 // there is no such command
	exitSignal      = 128 // plus the number of the signal that ended it
)

// A failure is an error with an exit code of its own.
type failure struct {
	code int
	err  error // nil if there is nothing to print
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit code %d", f.code)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// exit returns an error that prints nothing. It is not nil for code 0, because a nil error means
// that the program continues.
func exit(code int) error { return &failure{code: code} }

func fail(code int, format string, args ...any) error {
	return &failure{code, fmt.Errorf(format, args...)}
}

func usage(format string, args ...any) error { return fail(exitUsage, format, args...) }

// A signalError reports that a signal ended the operation.
type signalError struct{ syscall.Signal }

func (e signalError) Error() string { return "ended by a signal: " + e.String() }

// report prints err in one line, if it has a text, and returns the exit code.
func (p *program) report(err error) int {
	if err == nil {
		return 0
	}
	code, text := explain(err)
	if text != "" {
		fmt.Fprintln(p.err, "pgadvisory: "+oneLine(text))
	}
	return code
}

// explain returns the exit code for err, and the text to print.
func explain(err error) (code int, text string) {
	text = strings.TrimPrefix(err.Error(), "pgadvisory: ")
	if f, ok := errors.AsType[*failure](err); ok {
		if f.err == nil {
			return f.code, ""
		}
		return f.code, text
	}
	if s, ok := errors.AsType[signalError](err); ok {
		return exitSignal + int(s.Signal), ""
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0, ""
	case errors.Is(err, advisory.ErrInvalidKey):
		return exitUsage, text
	case errors.Is(err, advisory.ErrNotAcquired):
		return exitNo, text
	case errors.Is(err, advisory.ErrLost):
		return exitLost, text
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && (strings.HasPrefix(e.Code, "28") || e.Code == "42501") {
		return exitDenied, text
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return exitUnavailable, "the server did not answer in time: " + text
	}
	return exitUnavailable, text
}

func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
