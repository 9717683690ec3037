package advisory

import (
	"database/sql"
	"fmt"
	"reflect"
	"time"
)

// A SessionOption fits the calls of package sqlconn, and those of a [Locker].
type SessionOption interface{ ApplySession(*Settings) }

// A TxOption fits the calls of package xact.
type TxOption interface{ ApplyTx(*Settings) }

// An Option fits both kinds of call. An option that is out of place does not
// compile.
type Option interface {
	SessionOption
	TxOption
}

// An ObserverOption fits every call of packages sqlconn and xact, and
// locker.New.
type ObserverOption interface {
	Option
	ApplyLocker(*LockerSettings)
}

// Settings are what the options of one call come to. A user of the library has
// no need of them; whoever writes a [Locker] of their own reads the options of
// a call with [SessionSettings].
type Settings struct {
	Mode     Mode
	MaxWait  *time.Duration // nil: until ctx ends
	Label    string
	Observer Observer

	// For package xact alone.
	TxOptions    *sql.TxOptions
	AnyIsolation bool

	// For package sqlconn alone.
	HoldAtLeast   time.Duration
	PlainWait     bool
	SessionPooler bool
}

// LockerSettings are what the options of locker.New come to.
type LockerSettings struct {
	Observer        Observer
	Failover        time.Duration
	Heartbeat       time.Duration
	Fencing         bool
	MaxConns        int
	ApplicationName string
	NoServerCheck   bool
}

// SessionSettings reads the options of a call; of two of a kind the last counts.
// The error names an option that makes no sense: a nil, a negative time, an
// unknown Mode.
func SessionSettings(opts ...SessionOption) (Settings, error) {
	return settings(opts, SessionOption.ApplySession)
}

// TxSettings is what [SessionSettings] is, for the options of package xact.
func TxSettings(opts ...TxOption) (Settings, error) {
	return settings(opts, TxOption.ApplyTx)
}

func settings[O any](opts []O, apply func(O, *Settings)) (Settings, error) {
	var s Settings
	for i, o := range opts {
		if isNil(o) {
			return s, fmt.Errorf("pgadvisory: option %d of %d is nil", i+1, len(opts))
		}
		apply(o, &s)
	}
	switch {
	case s.Mode > Shared:
		return s, fmt.Errorf("pgadvisory: %v is not a mode", s.Mode)
	case s.MaxWait != nil && *s.MaxWait < 0:
		return s, fmt.Errorf("pgadvisory: MaxWait(%v) is negative", *s.MaxWait)
	case s.HoldAtLeast < 0:
		return s, fmt.Errorf("pgadvisory: HoldAtLeast(%v) is negative", s.HoldAtLeast)
	case s.Observer != nil && isNil(s.Observer):
		return s, fmt.Errorf("pgadvisory: WithObserver was given a nil %T", s.Observer)
	}
	return s, nil
}

// isNil also tells a nil pointer in an interface.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan, reflect.Slice, reflect.Interface:
		return r.IsNil()
	}
	return false
}

// MaxWait bounds how long a call waits for its lock, apart from ctx, which may
// go on to bound the work. The wait then ends as a [*NotAcquiredError].
// MaxWait(0) is one try. A Try… call is one try whatever MaxWait says.
//
// Neither bounds the wait for a connection: while all of a pool are in use, Do and
// TryDo of packages sqlconn and xact wait for one until ctx ends. Give ctx a
// deadline.
func MaxWait(d time.Duration) Option { return maxWait(d) }

type maxWait time.Duration

func (d maxWait) ApplySession(s *Settings) { s.MaxWait = (*time.Duration)(&d) }
func (d maxWait) ApplyTx(s *Settings)      { s.MaxWait = (*time.Duration)(&d) }

// Label names the kind of lock for logs, metrics and [Holder]: a word of which
// there are few, such as "account", where keys are many.
func Label(s string) Option { return label(s) }

type label string

func (l label) ApplySession(s *Settings) { s.Label = string(l) }
func (l label) ApplyTx(s *Settings)      { s.Label = string(l) }

// WithObserver has o told of what becomes of the lock. WithObserver(nil) is as
// if it were not there.
func WithObserver(o Observer) ObserverOption { return observerOption{o} }

type observerOption struct{ o Observer }

func (w observerOption) ApplySession(s *Settings)      { w.apply(&s.Observer) }
func (w observerOption) ApplyTx(s *Settings)           { w.apply(&s.Observer) }
func (w observerOption) ApplyLocker(s *LockerSettings) { w.apply(&s.Observer) }

func (w observerOption) apply(o *Observer) {
	if w.o != nil {
		*o = w.o
	}
}
