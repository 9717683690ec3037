package locker

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/failover"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/option"
	"github.com/pgadvisory/pgadvisory/internal/settings"
)

// An Option is an option of [New]. The options of a call that are one too are
// [advisory.WithObserver] and [advisory.WithWaitingAfter].
type Option interface {
	ApplyNew(*option.Locker)
}

type newOption func(*option.Locker)

func (f newOption) ApplyNew(l *option.Locker) { f(l) }

// WithFailover sets the time after which the lock of a holder that vanished is free again. It is 15 s
// by default, and from 4 s to 9 h. The holder's Context ends before that, by a stop margin of at
// least one second.
func WithFailover(d time.Duration) Option {
	return newOption(func(s *option.Locker) { s.Failover = d })
}

// WithHeartbeat sets the interval of the pings of a session. It is 500 ms by default, and less than
// one second, because the pings also keep waits from delaying others.
func WithHeartbeat(d time.Duration) Option {
	return newOption(func(s *option.Locker) { s.Heartbeat = d })
}

// WithFencing gives each hold a fencing token, [advisory.Lock].Token. Each token uses one transaction
// id and flushes the write-ahead log once. On a server before PostgreSQL 13, [Locker.Ping] and each
// call return an error.
//
// A token has the server's timeline in its upper 16 bits and the transaction id below. Each promotion
// begins a greater timeline. So tokens grow over a promotion, also of a standby that lags, and those
// of an old primary that still runs are smaller than the new primary's. Pass them on as uint64,
// numeric or text: from timeline 32 on they exceed the integers of a float64, and from 32,768 on
// those of a bigint.
//
// A server that begins again with timeline 1 needs [WithTokenEpoch]. Tokens may not grow in these
// cases:
//
//   - Two standbys of one primary are both promoted: both may begin the same timeline.
//   - A server is started from a snapshot of its volumes or of its virtual machine: it goes on with
//     the same timeline and older ids.
//   - A backup is recovered to a point in time without the archive's history files of later
//     timelines: the recovered server begins one that existed.
//
// If the timeline and the epoch add up to more than 65,535, no session is opened. If a transaction id
// is 2^48 or more, the call fails. Both errors say that no greater token exists.
func WithFencing() Option {
	return newOption(func(s *option.Locker) { s.Fencing = true })
}

// WithTokenEpoch adds n to the timeline in the tokens of [WithFencing]. n is 0 by default, and from 0
// to 65,534. A server begins with timeline 1 after an initdb: so does one that pg_upgrade made, or
// into which a dump was restored. Then give the last timeline of the old server plus its epoch to all
// Lockers. Without WithFencing it has no effect.
//
// The timeline is the first eight hexadecimal digits of
//
//	SELECT pg_walfile_name(pg_current_wal_lsn())
func WithTokenEpoch(n int) Option {
	return newOption(func(s *option.Locker) { s.TokenEpoch = n })
}

// WithMaxConns sets how many connections the Locker may use. It is 4 by default, and at least 2. One
// of them takes locks that are free, the others wait. A lock won by waiting stays on the session that
// waited. If all of them hold locks, the one with the fewest locks waits.
func WithMaxConns(n int) Option {
	return newOption(func(s *option.Locker) { s.MaxConns = n })
}

// WithApplicationName sets application_name of the Locker's sessions, which shows others who holds a
// lock. The server cuts it to 63 bytes and replaces what is not printable ASCII. If the name has a
// NUL byte or is not valid UTF-8, [Locker.Ping] and each call return an error.
func WithApplicationName(name string) Option {
	return newOption(func(s *option.Locker) { s.ApplicationName = name })
}

// WithoutServerCheck skips the check before a pool's first lock. That check takes some round trips on
// two connections. It shows that no pooler shares sessions of the server between clients, and that
// locks exclude. The Locker still refuses a hot standby, an old primary, and a server whose version()
// names another database than PostgreSQL, since only the check shows whether such a server locks.
func WithoutServerCheck() Option {
	return newOption(func(s *option.Locker) { s.NoServerCheck = true })
}

// HoldAtLeast delays a release until d after the lock was taken. So a short job does not run again on
// a node whose clock is behind. Unlock then returns at once, and the release happens in the
// background. Do, TryDo, Shutdown and Close wait for it. It is an option of the calls of a [Locker] and
// of a [Semaphore].
//
// The end of ctx does not end the delay: Do returns when d is over. The delay ends early if the ctx of
// Shutdown ends, or the process does: by a crash, os.Exit or log.Fatal.
func HoldAtLeast(d time.Duration) advisory.SemaphoreOption { return holdAtLeast(d) }

type holdAtLeast time.Duration

func (d holdAtLeast) ApplyLocker(c *option.Call)    { c.HoldAtLeast = time.Duration(d) }
func (d holdAtLeast) ApplySemaphore(c *option.Call) { c.HoldAtLeast = time.Duration(d) }

const defaultMaxConns = 4

// sessionSettings returns what a session sets before it takes locks.
func sessionSettings(t failover.Times, s option.Locker) []lockfn.Setting {
	seconds := func(d time.Duration) string { return fmt.Sprint(int(d.Seconds())) }
	list := []lockfn.Setting{
		{Name: "tcp_keepalives_idle", Value: seconds(t.Idle)},
		{Name: "tcp_keepalives_interval", Value: seconds(t.Interval)},
		{Name: "tcp_keepalives_count", Value: "1"},
		{Name: "tcp_user_timeout", Value: lockfn.Milliseconds(t.UserTimeout)},
		{Name: "client_connection_check_interval", Value: "1000"},
		{Name: "idle_session_timeout", Value: "0"},
		{Name: "idle_in_transaction_session_timeout", Value: "0"},
		{Name: "statement_timeout", Value: "0"},
		{Name: "lock_timeout", Value: "0"},
		{Name: "transaction_timeout", Value: "0"},
	}
	if s.Fencing {
		// With on, and a synchronous standby that is away, there is no answer.
		list = append(list, lockfn.Setting{Name: "synchronous_commit", Value: "local"})
	}
	if s.ApplicationName != "" {
		list = append(list, lockfn.Setting{Name: "application_name", Value: s.ApplicationName})
	}
	return list
}

func lockerSettings(opts []Option) (option.Locker, error) {
	s := option.Locker{Failover: failover.Default, Heartbeat: failover.DefaultHeartbeat, MaxConns: defaultMaxConns}
	if err := settings.Apply(opts, func(o Option) { o.ApplyNew(&s) }); err != nil {
		return s, fmt.Errorf("pgadvisory: locker.New: %w", err)
	}
	if err := failover.Of(s.Failover, s.Heartbeat).Validate(); err != nil {
		return s, fmt.Errorf("pgadvisory: %w", err)
	}
	switch {
	case !utf8.ValidString(s.ApplicationName) || strings.ContainsRune(s.ApplicationName, 0):
		return s, fmt.Errorf("pgadvisory: WithApplicationName(%.80q): it must be valid UTF-8, without a NUL byte", s.ApplicationName)
	case s.WaitingAfter < 0:
		return s, settings.NegativeWaitingAfter(s.WaitingAfter)
	case s.TokenEpoch < 0 || s.TokenEpoch >= lockfn.MostTimelines:
		return s, fmt.Errorf("pgadvisory: WithTokenEpoch(%d): it must be from 0 to %d", s.TokenEpoch, lockfn.MostTimelines-1)
	case s.MaxConns < 2:
		return s, fmt.Errorf("pgadvisory: WithMaxConns(%d): it must be at least 2", s.MaxConns)
	}
	o, _ := s.Observer.(advisory.Observer)
	return s, settings.CheckObserver(o)
}
