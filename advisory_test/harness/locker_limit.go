package harness

import (
	"errors"

	"github.com/pgadvisory/pgadvisory/advisory"
)

func IsFull(err error) bool { return errors.Is(err, advisory.ErrLockTableFull) }
