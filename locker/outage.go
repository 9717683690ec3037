package locker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/dbconn"
)

// An outage is the time in which sessions cannot be opened. Calls that wait go on, and their keys are
// tried after a pause that grows, is capped, and differs from one process to another. All share one
// attempt. A try does not wait for the end of a pause, and returns the error of its attempt.
type outage struct {
	err   error // of the last attempt; nil if a session was opened since
	pause time.Duration
	until time.Time // the end of the pause
}

const (
	firstPause = 50 * time.Millisecond
	lastPause  = 1500 * time.Millisecond
)

// openingFailed begins a pause. An attempt that a try made in a pause does not extend it. The mutex is held.
func (l *Locker) openingFailed(err error) {
	o := &l.outage
	o.err = err
	if time.Now().Before(o.until) {
		return
	}
	o.pause = min(max(2*o.pause, firstPause), lastPause)
	o.until = time.Now().Add(o.pause/2 + rand.N(o.pause/2))
}

// sessionOpened ends the outage, and has the keys tried that were left alone meanwhile. The mutex is
// held.
func (l *Locker) sessionOpened() {
	l.hadSession = true
	if l.outage.err != nil && l.polling {
		l.pollTimer.Reset(pollEvery)
	}
	l.outage = outage{}
}

// cutOff reports whether no session can take locks that are free, and the last attempt to open one
// failed. The mutex is held.
func (l *Locker) cutOff() bool {
	return l.outage.err != nil && (l.front == nil || !l.front.opened()) && l.readySession() == nil
}

// pausing reports whether calls that wait leave the server alone. While an attempt is under way they
// wait for its result. The mutex is held.
func (l *Locker) pausing() bool {
	return l.cutOff() && l.front == nil && l.outlasts(l.outage.err) && time.Now().Before(l.outage.until)
}

// awaitSession returns when calls that wait may ask the server again, or with the error that ends the
// wait.
func (l *Locker) awaitSession(limit context.Context) error {
	l.awaiting.Add(1)
	defer l.awaiting.Add(-1)
	for {
		pause, opened, change, err := l.pauseOrOpen()
		if change == nil {
			return err
		}
		select {
		case <-pause:
		case <-opened:
		case <-change: // the Locker is closed, say
		case <-limit.Done():
			return errLeft
		}
	}
}

// pauseOrOpen returns where the end of the pause comes or, after that, of an attempt to open a session
// which it begins or joins. change is nil if there is no outage.
func (l *Locker) pauseOrOpen() (pause <-chan time.Time, opened <-chan error, change <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusal != nil || !l.cutOff() || !l.outlasts(l.outage.err) {
		return nil, nil, nil, l.refusal
	}
	if l.pausing() {
		return time.After(time.Until(l.outage.until)), nil, l.watch(), nil
	}
	answer := make(chan error, 1)
	err = l.ping(answer)
	return nil, answer, l.watch(), err
}

// An openingError is that of an attempt to open a session.
type openingError struct {
	fault dbconn.Fault
	cause error
}

func (e *openingError) Error() string { return fmt.Sprintf("open a session for locks: %v", e.cause) }
func (e *openingError) Unwrap() error { return e.cause }

// outlasts reports whether a call that waits goes on after err: no session could be opened, and a later
// attempt may succeed. Where that is unclear, it may if the Locker has had a session before. The mutex
// is held.
func (l *Locker) outlasts(err error) bool {
	e, ok := errors.AsType[*openingError](err)
	return ok && (e.fault == dbconn.Passing || e.fault == dbconn.Unclear && l.hadSession)
}

// goesOn is outlasts for a caller that does not have the mutex.
func (l *Locker) goesOn(err error) bool {
	if err == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outlasts(err)
}

// lasting reports whether no attempt to open a session will succeed.
func lasting(err error) bool {
	e, ok := errors.AsType[*openingError](err)
	return ok && e.fault == dbconn.Lasting
}

// errNotOpened is the reason while the first attempt is under way.
var errNotOpened = errors.New("no session for locks is open yet, the server has not answered the attempt to connect")

// whyNoSession adds to err, which may be nil, why there is no session.
func (l *Locker) whyNoSession(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var why error
	switch {
	case l.cutOff():
		why = l.outage.err
	case l.front != nil && !l.front.opened() && l.readySession() == nil && l.uncheckable == nil:
		why = errNotOpened
	default:
		return err
	}
	if err == nil {
		return why
	}
	return fmt.Errorf("%w; %w", err, why)
}
