package locker

import (
	"context"
	"errors"
	"fmt"

	"github.com/pgadvisory/pgadvisory/internal/bound"
)

// Ping opens the Locker's session, if there is none, and looks whether it works: bad
// options, a server that cannot be reached, or one on which locks would be fake, are told
// at start-up and not at the first tick. That this could not be found out, because all
// connections of the pool were in use, say, is an error, too.
func (l *Locker) Ping(ctx context.Context) error {
	err := l.usable()
	switch {
	case errors.Is(err, errNotMade):
		return fmt.Errorf("pgadvisory: ping: %w", err)
	case err != nil:
		return err
	case ctx == nil:
		return fmt.Errorf("pgadvisory: ping: %w", errNilCtx)
	}
	err = l.pingOnce(ctx)
	for n := 1; n < maxEnded && retriable(err); n++ {
		err = l.pingOnce(ctx)
	}
	err = unheld(err)
	if err == nil {
		err = l.ensureChecked(ctx)
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
	s, err := l.frontSession()
	if err == nil {
		s.submit(&op{done: func(_ bool, _ uint64, err error) { answer <- err }})
	}
	return err
}
