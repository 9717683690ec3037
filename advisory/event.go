package advisory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// EventKind says what an [Event] tells of.
type EventKind uint8

const (
	// Acquired: the lock was taken, after Waited.
	Acquired EventKind = iota + 1
	// NotAcquired: a try or a wait ended without the lock.
	NotAcquired
	// Waiting: a wait has lasted long and goes on.
	Waiting
	// Released: the lock was given back, after Held.
	Released
	// Lost: the lock was held and is gone.
	Lost
	// SessionOpened: a Locker opened a connection.
	SessionOpened
	// SessionClosed: a Locker closed a connection.
	SessionClosed
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
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// An Event is what an [Observer] is told.
type Event struct {
	Kind   EventKind
	Key    Key // the zero Key: of no lock in particular, such as SessionOpened
	Mode   Mode
	Label  string        // as the call's Label option said
	Waited time.Duration // Acquired, NotAcquired, Waiting: since the call began
	Held   time.Duration // Released, Lost: since the lock was acquired; 0 where it is not known
	Local  bool          // handed over inside the process
	PID    int           // of the server process, where it is known
	Err    error         // NotAcquired, Lost, SessionClosed: why, if there was an error
}

// An Observer is told of what becomes of locks. Observe holds up the call that
// it tells of, or the Locker's session, so it should return quickly; it may be
// called by many goroutines at once.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// SlogObserver logs events to l, or to slog.Default() if l is nil: losses as
// errors; long waits, and calls that failed otherwise than by a lock that is not free or the
// end of ctx, as warnings; the rest at debug level.
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
	case Waiting:
		level = slog.LevelWarn
	case NotAcquired:
		// A leader's campaigns, say, which go on, and tell nobody else.
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
	case Acquired, NotAcquired, Waiting:
		attrs = append(attrs, slog.Duration("waited", e.Waited))
	case Released, Lost:
		if e.Held != 0 {
			attrs = append(attrs, slog.Duration("held", e.Held))
		}
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
	l.LogAttrs(ctx, level, "advisory lock "+e.Kind.String(), attrs...)
}
