package lockfn

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// Error wraps err with what was attempted, and with the error of package advisory
// that it amounts to. It keeps an error of package advisory as it is.
func Error(op string, k advisory.Key, m advisory.Mode, err error) error {
	var na *advisory.NotAcquiredError
	if err == nil || errors.As(err, &na) {
		return err
	}
	return fmt.Errorf("pgadvisory: %s %s (%v): %w", op, k, m, Meaning(err))
}

// Meaning adds what an error of the server or of database/sql comes to.
func Meaning(err error) error {
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
	return err
}
