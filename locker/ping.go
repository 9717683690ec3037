package locker

import (
	"context"
	"errors"
	"fmt"

	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/given"
)

// Ping opens the Locker's session, if there is none, and waits for an answer of the server. Call
// it at start-up. It fails if the options are wrong, if the server cannot be reached, or if locks
// would be fake there. It also fails if the server could not be checked, because all
// connections of the pool were in use, for example. It does not wait for a server to come back.
//
// With [WithStandby] it also fails while the last commit is not confirmed, which may cost the locks
// soon: as [advisory.ErrUnconfirmed], and with reason [advisory.NoStandby] while
// synchronous_standby_names is empty. On an old primary it fails with reason
// [advisory.StalePrimary]. It asks the server nothing more for that, so it reports what was known
// up to two seconds ago.
func (l *Locker) Ping(ctx context.Context) error {
	err := l.usable()
	switch {
	case errors.Is(err, errNotMade):
		return fmt.Errorf("pgadvisory: ping: %w", err)
	case err != nil:
		return err
	case ctx == nil:
		return fmt.Errorf("pgadvisory: ping: %w", given.ErrNilCtx)
	}
	err = l.pingOnce(ctx)
	for n := 1; n < maxEnded && retriable(err); n++ {
		err = l.pingOnce(ctx)
	}
	if err == nil {
		err = l.ensureChecked(ctx)
	}
	err = unheld(err)
	if err == nil {
		err = l.doubted()
	}
	if err != nil {
		return fmt.Errorf("pgadvisory: ping: %w", err)
	}
	return nil
}

// pingOnce waits for an answer of the first session.
func (l *Locker) pingOnce(ctx context.Context) error {
	answer := make(chan error, 1)
	if err := l.submitPing(answer); err != nil {
		return err
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return bound.Cause(ctx)
	}
}

func (l *Locker) submitPing(answer chan error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusal != nil {
		return l.refusal
	}
	return l.ping(answer)
}

// ping has the front session ask for an answer of the server. The mutex is held.
func (l *Locker) ping(answer chan<- error) error {
	s, err := l.frontSession()
	if err == nil {
		s.submit(&op{done: func(_ bool, _ uint64, err error) { answer <- err }})
	}
	return err
}
