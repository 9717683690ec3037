package advisory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// EventKind is the kind of an [Event].
type EventKind uint8

const (
	// Acquired: the call took the lock, after Waited.
	Acquired EventKind = iota + 1
	// NotAcquired: a try or a wait ended without the lock.
	NotAcquired
	// Waiting: a wait is taking long, and continues. The first comes after 5 s, or after the time of
	// [WithWaitingAfter], and another each time that the wait has doubled.
	Waiting
	// Released: the lock was released, after Held.
	Released
	// Lost: the lock was held, and ended with its session.
	Lost
	// SessionOpened: a Locker opened a connection.
	SessionOpened
	// SessionClosed: a Locker closed a connection.
	SessionClosed
	// Unconfirmed: a Locker with locker.WithStandby holds locks, or can give them out, and its last
	// commit was not confirmed by a standby in time, or failed. The locks end after Left, unless a
	// later commit is confirmed. There is one event at the beginning of such a time, whatever else
	// fails in it, and none when the Locker opens a session again meanwhile. With
	// locker.WithStandbyIfNamed there is another if the Locker begins or ceases to do without a
	// standby.
	//
	// Err matches [ErrUnconfirmed], and is an [*UnsafeServerError] of reason [NoStandby] while
	// synchronous_standby_names is empty.
	Unconfirmed
	// Confirmed: after an Unconfirmed event a commit was confirmed again, by whichever server the
	// Locker is on. If locks were lost meanwhile, there is a Lost event for each. A Locker
	// that has no session any more commits nothing: then Confirmed comes after its next call, which
	// may be Ping. Close reports none.
	Confirmed
)

// String returns the kind in lower case, such as "not acquired".
func (k EventKind) String() string {
	switch k {
	case Acquired:
		return "acquired"
	case NotAcquired:
		return "not acquired"
	case Waiting:
		return "waiting"
	case Released:
		return "released"
	case Lost:
		return "lost"
	case SessionOpened:
		return "session opened"
	case SessionClosed:
		return "session closed"
	case Unconfirmed:
		return "unconfirmed"
	case Confirmed:
		return "confirmed"
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// An Event reports one change of a lock, or of a Locker's session, to an [Observer].
type Event struct {
	Kind   EventKind
	Key    Key // the zero Key if the event is about no single lock, such as SessionOpened
	Mode   Mode
	Label  string        // of the call's Label option
	Waited time.Duration // Acquired, NotAcquired, Waiting: since the call began. Confirmed: since Unconfirmed
	Held   time.Duration // Released, Lost: since the lock was acquired; 0 if unknown
	Left   time.Duration // Unconfirmed: until the locks end; 0 if the Locker does without a standby
	Local  bool          // the lock was handed over inside the process
	PID    int           // of the server process; 0 if unknown
	Err    error         // the cause, if there was an error

	Holders []Holder // Waiting: who holds the key; empty if nobody does, or it is not known
}

// An Observer receives the events of locks.
//
// Observe blocks the call or the Locker session that it reports on, so it should return quickly.
// Several goroutines may call it at once. A Locker gives out no lock on a session before Observe has
// returned from its SessionOpened: it must not call the Locker for that event. The events of sessions,
// losses and confirmations come on goroutines of the library, where a panic ends the process.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// SlogObserver returns an Observer that logs to l, or to slog.Default() if l is nil. The levels are:
//
//   - error: a lost lock
//   - warning: a long wait; a primary that no standby confirms; a call that failed for another
//     reason than a lock that is not free or the end of ctx
//   - info: a primary that is confirmed again
//   - debug: everything else
func SlogObserver(l *slog.Logger) Observer { return slogObserver{l} }

type slogObserver struct{ l *slog.Logger }

func (o slogObserver) Observe(ctx context.Context, e Event) {
	l := o.l
	if l == nil {
		l = slog.Default()
	}
	level := slog.LevelDebug
	switch e.Kind {
	case Lost:
		level = slog.LevelError
	case Waiting, Unconfirmed:
		level = slog.LevelWarn
	case Confirmed:
		level = slog.LevelInfo
	case NotAcquired:
		// Background calls, such as a leader's campaigns, have no caller that gets the error.
		if e.Err != nil && !errors.Is(e.Err, ErrNotAcquired) && !errors.Is(e.Err, context.Canceled) && !errors.Is(e.Err, context.DeadlineExceeded) {
			level = slog.LevelWarn
		}
	}
	if !l.Enabled(ctx, level) {
		return
	}
	var attrs []slog.Attr
	if !e.Key.IsZero() {
		attrs = append(attrs, slog.String("key", e.Key.String()), slog.String("mode", e.Mode.String()))
	}
	if e.Label != "" {
		attrs = append(attrs, slog.String("label", e.Label))
	}
	switch e.Kind {
	case Acquired, NotAcquired, Waiting, Confirmed:
		attrs = append(attrs, slog.Duration("waited", e.Waited))
	case Released, Lost:
		if e.Held != 0 {
			attrs = append(attrs, slog.Duration("held", e.Held))
		}
	case Unconfirmed:
		if e.Left != 0 {
			attrs = append(attrs, slog.Duration("left", e.Left))
		}
	}
	if len(e.Holders) > 0 {
		attrs = append(attrs, slog.String("holders", joined(e.Holders)))
	}
	if e.Local {
		attrs = append(attrs, slog.Bool("local", true))
	}
	if e.PID != 0 {
		attrs = append(attrs, slog.Int("pid", e.PID))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("err", e.Err))
	}
	l.LogAttrs(ctx, level, e.message(), attrs...)
}

// message returns the message of the log.
func (e Event) message() string {
	switch e.Kind {
	case Unconfirmed:
		return "advisory locks: the primary is not confirmed by a standby"
	case Confirmed:
		return "advisory locks: the primary is confirmed again"
	}
	return "advisory lock " + e.Kind.String()
}
