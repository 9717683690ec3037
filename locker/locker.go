package locker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/failover"
	"github.com/pgadvisory/pgadvisory/internal/given"
	"github.com/pgadvisory/pgadvisory/internal/option"
	"github.com/pgadvisory/pgadvisory/internal/settings"
	"github.com/pgadvisory/pgadvisory/internal/under"
)

// A Locker takes any number of session-level locks, for any number of goroutines, over a
// handful of connections of a pool, often one. Make one for a pool and keep it.
//
// Its connections are pinned and have settings of their own: they are destroyed, not
// pooled, when it is closed. MaxOpenConns of the pool has to leave room for them beside
// what the work under the locks needs.
//
// On servers where locks would be fake it refuses to lock, as [advisory.ErrUnsafeServer]: on
// a hot standby, on a database whose functions lock nothing, and behind a pooler that hands one session
// to several clients, such as PgBouncer in transaction mode. It checks that before the first
// lock of a pool, with a second connection for some round trips. If no check can be made on a
// connection that is seen to be direct, the Locker grants locks, sets Err in the SessionOpened
// event, and repeats the check, at most every ten seconds; if locks then turn out to be fake,
// they are lost. Through a proxy, and where the driver does not show whether there is one, it
// gives out no lock before the check has succeeded: it repeats the check for half a minute, and
// calls wait until then or until ctx ends, and return why. [Locker.Ping] insists on the check. If
// the Locker's own connection fails meanwhile, no session is opened, as on any connection
// that fails.
//
// At each new session it also refuses an old primary, one that was started again after a standby had
// been promoted: a server on an older timeline than the pool has led to before. It shares that memory
// with the other Lockers of the pool. After a restart of the program it does not know. A timeline
// counts for one system identifier, which pg_upgrade and initdb change, and a clone of the volume does
// not. On a server that does not permit pg_control_system or pg_walfile_name it does not ask.
type Locker struct {
	db       *sql.DB
	settings option.Locker
	times    failover.Times
	bad      error // the options are wrong: every call says so

	mu         checkedMutex
	gates      map[advisory.Key]*gate
	sessions   map[*session]struct{}
	lost       map[*session]struct{} // whose connections are not closed yet
	front      *session              // takes the locks that are free
	polled     []*gate               // keys that no session waits for
	polling    bool
	pollOnly   bool // all waits are polled: a slice is not possible, or not guarded in time
	pollTimer  *time.Timer
	outage     outage
	guardDue   bool                 // a timer will call keepGuard
	awaiting   atomic.Int64         // calls that wait in no queue, for the end of the outage
	hadSession bool                 // a session was open once
	users      map[*handle]struct{} // who have a lock, or work under a lost one
	refusal    error                // ErrClosed once no new locks are given
	noDelay    bool                 // no release is put off any more
	closed     bool                 // and no session is opened
	drained    chan struct{}
	ending     chan struct{} // closed with it
	change     chan struct{} // closed when a statement about some key is done; nil if nobody watches
	stamps     uint64        // how many were given: see stamp

	uncheckable error     // why no lock is given out yet; nil if it is not known to be so
	checkedAt   time.Time // when a check of the server that could not be made was last tried again

	proofs       map[string]*proof // by their servers, with WithStandby
	wasConfirmed bool              // by a standby, at any server
	doubt        doubtReport

	held int64 // locks of ours on the server
	room room

	asked asked // who holds a key

	checks   sync.WaitGroup // of the server, beside the sessions
	deferred sync.WaitGroup // releases that were put off
}

var _ advisory.Locker = (*Locker)(nil)

// New returns a Locker over db. It opens no connection before it needs one. If
// the options are wrong, Ping and every other call fail.
func New(db *sql.DB, opts ...Option) *Locker {
	l := &Locker{
		db: db, gates: map[advisory.Key]*gate{}, users: map[*handle]struct{}{}, sessions: map[*session]struct{}{}, lost: map[*session]struct{}{},
		proofs: map[string]*proof{}, drained: make(chan struct{}), ending: make(chan struct{}), asked: asked{turn: make(chan struct{}, 1)},
	}
	l.settings, l.bad = lockerSettings(opts)
	if l.bad == nil && db == nil {
		l.bad = errors.New("pgadvisory: locker.New was given a nil *sql.DB")
	}
	l.times = failover.Of(l.settings.Failover, l.settings.Heartbeat)
	if verify != nil {
		l.mu.check = func() { verify(l) }
	}
	return l
}

// frontSession returns the session that takes locks which are free. The mutex is held.
func (l *Locker) frontSession() (*session, error) {
	if l.closed {
		return nil, advisory.ErrClosed
	}
	if l.front == nil {
		if l.front = l.readySession(); l.front == nil {
			l.front = l.newSession()
		}
	}
	return l.front, nil
}

// readySession returns a session that is open and waits for nothing, or nil. The mutex is held.
func (l *Locker) readySession() *session {
	for s := range l.sessions {
		if s.phase == sessionReady && !s.closing {
			return s
		}
	}
	return nil
}

// usable returns why the Locker can do nothing: it was not made by [New], or its options are wrong.
func (l *Locker) usable() error {
	if l == nil || l.gates == nil {
		return errNotMade
	}
	return l.bad
}

var errNotMade = errors.New("a Locker is made by locker.New")

// checkCall checks the arguments of a call.
func (l *Locker) checkCall(ctx context.Context, opts []advisory.LockerOption, keys ...advisory.Key) (settings.Call, error) {
	if err := l.usable(); err != nil {
		return settings.Call{}, err
	}
	if ctx == nil {
		return settings.Call{}, given.ErrNilCtx
	}
	s, err := settings.Locker(opts)
	if err != nil {
		return s, err
	}
	return s, settings.CheckKeys(keys...)
}

// notUnder returns an error if ctx has ended, or is that of work under a lock on key, which
// would wait for itself.
func notUnder(ctx context.Context, key advisory.Key) error {
	if ctx.Err() != nil {
		return bound.Cause(ctx)
	}
	if under.Holds(ctx, key) {
		return fmt.Errorf("%w by the work that asks for it: %s", advisory.ErrAlreadyHeld, key)
	}
	return nil
}
