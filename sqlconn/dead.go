package sqlconn

import (
	"errors"
	"fmt"

	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/statement"
)

var (
	errGone  = errors.New("the connection is gone, and holds nothing: open another")
	errAgain = errors.New("open another connection")
)

// markGone adds errGone to the error of a call's first statement if the connection is gone. Pooled
// connections may have died long before, for example with a restart of the server.
func markGone(err error) error {
	if !lockfn.Gone(err) || errors.Is(err, statement.ErrBusy) || errors.Is(err, bound.ErrNoAnswer) {
		return err
	}
	return fmt.Errorf("%w: %w", errGone, err)
}

// extraDead is how many dead connections a Do discards in addition to those that were idle in the
// pool when it began. Others may come back to the pool during the call, or die while they are
// opened. database/sql allows its own calls two.
const extraDead = 2
