package lockfn

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// Error wraps err with what was attempted, on which key, and with the error of package advisory
// that it matches. It returns nil and a *advisory.NotAcquiredError unchanged.
func Error(op string, k advisory.Key, m advisory.Mode, err error) error {
	var na *advisory.NotAcquiredError
	if err == nil || errors.As(err, &na) {
		return err
	}
	if errors.Is(err, advisory.ErrInvalidKey) {
		err = fmt.Errorf("%w: the zero Key, which Name makes of a part that is missing or empty", err)
	}
	if k != (advisory.Key{}) {
		op = fmt.Sprintf("%s %s (%v)", op, k, m)
	}
	return &attempt{op, Meaning(err)}
}

// An attempt is an error with the operation that failed. Its text names this module once, not again
// with each wrapped error of package advisory.
type attempt struct {
	op  string
	err error
}

func (a *attempt) Error() string {
	const module = "pgadvisory: "
	return module + a.op + ": " + strings.ReplaceAll(a.err.Error(), module, "")
}

func (a *attempt) Unwrap() error { return a.err }

// A meaning is an error that [Meaning] has explained.
type meaning struct{ error }

func (m meaning) Unwrap() error { return m.error }

// Meaning adds what an error of the server or of database/sql means, once.
func Meaning(err error) error {
	if _, done := errors.AsType[meaning](err); done || err == nil {
		return err
	}
	if what := explain(err); what != nil {
		return meaning{what}
	}
	return err
}

func explain(err error) error {
	switch SQLState(err) {
	case outOfMemory:
		return fmt.Errorf("%w, all sessions of the server share it: hold fewer locks, or raise max_locks_per_transaction: %w", advisory.ErrLockTableFull, err)
	case deadlockDetected:
		return fmt.Errorf("%w, found by the server: release what is held and try again: %w", advisory.ErrDeadlock, err)
	case InFailedTransaction:
		return fmt.Errorf("the transaction has failed, roll it back first: %w", err)
	case queryCanceled:
		return fmt.Errorf("canceled on the server: %w", err)
	}
	switch {
	case errors.Is(err, sql.ErrConnDone):
		return fmt.Errorf("the connection is closed: %w", err)
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("the transaction has ended: %w", err)
	}
	return nil
}
