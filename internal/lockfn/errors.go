package lockfn

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// Error wraps err with what was attempted, and with the error of package advisory
// that it amounts to. It keeps an error of package advisory as it is.
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

// An attempt is what failed. Its text names this module once, and not again with each error
// of package advisory.
type attempt struct {
	op  string
	err error
}

func (a *attempt) Error() string {
	const module = "pgadvisory: "
	return module + a.op + ": " + strings.ReplaceAll(a.err.Error(), module, "")
}

func (a *attempt) Unwrap() error { return a.err }

// A meaning is an error to which has been added what it comes to.
type meaning struct{ error }

func (m meaning) Unwrap() error { return m.error }

// Meaning adds what an error of the server or of database/sql comes to, once.
func Meaning(err error) error {
	if _, told := errors.AsType[meaning](err); told || err == nil {
		return err
	}
	if what := mean(err); what != nil {
		return meaning{what}
	}
	return err
}

func mean(err error) error {
	switch SQLState(err) {
	case outOfMemory:
		return fmt.Errorf("%w, it is shared by all of the server: hold fewer locks, or raise max_locks_per_transaction: %w", advisory.ErrLockTableFull, err)
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
