package locker

import (
	"errors"
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// A lossError is that of all that was up to a session which is lost: the locks that it held, and
// the statements that it had not answered.
type lossError struct{ cause error }

func (e *lossError) Error() string   { return fmt.Sprintf("%v: %v", advisory.ErrLost, e.cause) }
func (e *lossError) Unwrap() []error { return []error{advisory.ErrLost, e.cause} }

// An endedError is what a lossError is to a caller that held nothing: its session ended.
type endedError struct{ cause error }

func (e *endedError) Error() string {
	return fmt.Sprintf("the session ended before it answered: %v", e.cause)
}
func (e *endedError) Unwrap() error { return e.cause }

// unheld returns err for a caller that held nothing: nothing of its was lost.
func unheld(err error) error {
	if loss, ok := errors.AsType[*lossError](err); ok {
		return &endedError{loss.cause}
	}
	return err
}

// sessionEnded reports whether err is that of a caller whose session ended, and who may be served by
// another.
func sessionEnded(err error) bool {
	_, ok := errors.AsType[*endedError](err)
	return ok && othersServe(err)
}

// othersServe reports whether other sessions may serve, after the loss of one with err.
func othersServe(err error) bool {
	return !errors.Is(err, advisory.ErrUnsafeServer) || stalePrimary(err)
}

// maxEnded is on how many sessions that end a try is made: each is a connection that worked
// when it was opened.
const maxEnded = 4

// elsewhere reports whether another session may serve what ended with err of its session.
func elsewhere(err error) bool {
	return errors.Is(err, advisory.ErrLost) && othersServe(err)
}

// retriable is elsewhere for a try. After a deadline it is not known whether the server has done it,
// and another session would take as long.
func retriable(err error) bool { return elsewhere(err) && !errors.Is(err, errOverdue) }

// again reports whether r is to be tried on another session, after err of one. A wait has as
// many as it takes.
func (r *request) again(err error) bool {
	r.ended++
	if r.once {
		return r.ended < maxEnded && retriable(err)
	}
	return elsewhere(err)
}
