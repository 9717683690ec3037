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
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/option"
	"github.com/pgadvisory/pgadvisory/internal/settings"
	"github.com/pgadvisory/pgadvisory/internal/statement"
	"github.com/pgadvisory/pgadvisory/internal/under"
	"github.com/pgadvisory/pgadvisory/internal/wait"
	"github.com/pgadvisory/pgadvisory/internal/work"
)

// A Locker takes any number of session-level locks, for any number of goroutines, over a
// handful of connections of a pool, often one. Make one for a pool and keep it.
//
// Its connections are pinned and have settings of their own: they are destroyed, not
// pooled, when it is closed. MaxOpenConns of the pool has to leave room for them beside
// what the work under the locks needs.
//
// On servers where locks would be fake it refuses to lock, as [advisory.ErrUnsafeServer]: on
// a hot standby, on what is not PostgreSQL, and behind a pooler that hands one session
// to several clients, such as PgBouncer in transaction mode. It checks that before the first
// lock of a pool, with a second connection for some round trips. If no check can be made on a
// connection that is seen to be direct, the Locker grants locks, sets Err in the SessionOpened
// event, and repeats the check, at most every ten seconds; if locks then turn out to be fake,
// they are lost. Through a proxy, and where the driver does not show whether there is one, it
// gives out no lock before the check has succeeded: it repeats the check for half a minute, and
// calls wait until then or until ctx ends, and return why. [Locker.Ping] insists on the check. If
// the Locker's own connection fails meanwhile, no session is opened, as on any connection
// that fails.
type Locker struct {
	db       *sql.DB
	settings option.Locker
	times    failover.Times
	bad      error // the options are wrong: every call says so

	mu       sync.Mutex
	gates    map[advisory.Key]*gate
	sessions map[*session]struct{}
	lost     map[*session]struct{} // whose connections are not closed yet
	front    *session              // takes the locks that are free
	polled   []*gate               // keys that no session waits for
	polling  bool
	polls    bool      // all waits are polled: a slice is not possible, or not guarded in time
	noMore   time.Time // open no session to wait before this
	users    int       // locks that callers have
	state    error     // ErrClosed once no new locks are given
	prompt   bool      // no release is put off any more
	closed   bool      // and no session is opened
	drained  chan struct{}
	ending   chan struct{} // closed with it
	change   chan struct{} // closed when a statement about some key is done; nil if nobody watches
	stamps   uint64        // how many were given: see stamp

	uncheckable error     // why no lock is given out yet; nil if it is not known to be so
	checkedAt   time.Time // when a check of the server that could not be made was last tried again

	held int64 // locks of ours on the server
	room room

	checks   sync.WaitGroup // of the server, beside the sessions
	deferred sync.WaitGroup // releases that were put off
}

var _ advisory.Locker = (*Locker)(nil)

// New returns a Locker over db. It opens no connection before it needs one. Options
// that make no sense are told by Ping, and by every other call.
func New(db *sql.DB, opts ...Option) *Locker {
	l := &Locker{
		db: db, gates: map[advisory.Key]*gate{}, sessions: map[*session]struct{}{}, lost: map[*session]struct{}{},
		drained: make(chan struct{}), ending: make(chan struct{}),
	}
	l.settings, l.bad = lockerSettings(opts)
	if l.bad == nil && db == nil {
		l.bad = errors.New("pgadvisory: locker.New was given a nil *sql.DB")
	}
	l.times = failover.Of(l.settings.Failover, l.settings.Heartbeat)
	return l
}

// frontSession returns the session that takes locks which are free. The mutex is held.
func (l *Locker) frontSession() (*session, error) {
	if l.closed {
		return nil, advisory.ErrClosed
	}
	if l.front == nil {
		for s := range l.sessions {
			if s.open && s.dead == nil && !s.stop && s.waitFor == nil {
				l.front = s
				return s, nil
			}
		}
		l.front = l.newSession()
	}
	return l.front, nil
}

// usable returns why the Locker can do nothing: it was not made by [New], or its options are wrong.
func (l *Locker) usable() error {
	if l == nil || l.gates == nil {
		return errNotMade
	}
	return l.bad
}

var errNilCtx = errors.New("ctx is nil")

var errNotMade = errors.New("a Locker is made by locker.New")

// ready looks at the arguments of a call.
func (l *Locker) ready(ctx context.Context, opts []advisory.LockerOption, keys ...advisory.Key) (settings.Call, error) {
	if err := l.usable(); err != nil {
		return settings.Call{}, err
	}
	if ctx == nil {
		return settings.Call{}, errNilCtx
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

// TryLock makes one try. It is no round trip if this process has the key, and shares one
// with all others that ask at the same time if not.
func (l *Locker) TryLock(ctx context.Context, key advisory.Key, opts ...advisory.LockerOption) (advisory.Lock, bool, error) {
	h, err := l.acquire(ctx, time.Now(), "try lock", key, opts, true)
	return h, h.hold != nil, err
}

// Lock waits until it has the lock.
func (l *Locker) Lock(ctx context.Context, key advisory.Key, opts ...advisory.LockerOption) (advisory.Lock, error) {
	return l.acquire(ctx, time.Now(), "lock", key, opts, false)
}

// acquire returns the lock, or one that holds nothing.
func (l *Locker) acquire(ctx context.Context, start time.Time, op string, key advisory.Key, opts []advisory.LockerOption, try bool) (*handle, error) {
	s, err := l.ready(ctx, opts, key)
	if err != nil {
		return none(key, s.Mode), lockfn.Error(op, key, s.Mode, err)
	}
	if try {
		s.MaxWait = nil // it is not for a try
	}
	limit, cancel := wait.Limit(ctx, s)
	defer cancel()
	r := &request{ctx: ctx, settings: s, once: try || wait.OneTry(s), done: make(chan struct{})}
	var h *handle
	if err = notUnder(ctx, key); err == nil {
		err = l.enter(r, key)
	}
	if err == nil {
		h, err = l.await(ctx, limit, r, start)
	}
	if !try {
		if h == nil && err == nil {
			err = l.notAcquired(ctx, key, s.Mode, start)
		}
		err = wait.Ended(ctx, limit, key, s.Mode, start, err)
	}
	err = lockfn.Error(op, key, s.Mode, err)
	l.tell(ctx, s, key, h, start, err)
	if h == nil {
		return none(key, s.Mode), err
	}
	return h, nil
}

// enter has r queue for key.
func (l *Locker) enter(r *request, key advisory.Key) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == nil {
		l.gate(key).enter(r)
	}
	return l.state
}

// await waits for the answer to r, or for the end of limit. The caller's ctx does not
// reach the driver: a grant that comes later is undone.
func (l *Locker) await(ctx, limit context.Context, r *request, start time.Time) (*handle, error) {
	if !r.once {
		defer wait.Long(ctx, l.observer(r.settings), r.gate.key, r.settings, start)()
	}
	if l.answered(limit, r); errors.Is(r.err, errLeft) {
		return nil, l.left(ctx, r, start)
	}
	return r.lock, r.err
}

// answered returns when r is settled, at the latest when limit ends: then by errLeft.
func (l *Locker) answered(limit context.Context, r *request) {
	select {
	case <-r.done:
	case <-limit.Done():
		l.mu.Lock()
		if !r.settled {
			r.settle(errLeft)
			r.gate.leave(r)
		}
		l.mu.Unlock()
	}
}

var errLeft = errors.New("the caller does not wait any more")

// left is the error of a caller that has left.
func (l *Locker) left(ctx context.Context, r *request, start time.Time) error {
	if r.once && ctx.Err() != nil {
		return l.whyUnchecked(bound.Cause(ctx))
	}
	l.mu.Lock()
	key := r.gate.key // which an answer that comes late may change
	l.mu.Unlock()
	return l.notAcquired(ctx, key, r.settings.Mode, start)
}

// notAcquired is the error of a wait that ended. It asks who holds the key.
func (l *Locker) notAcquired(ctx context.Context, key advisory.Key, m advisory.Mode, start time.Time) error {
	e := &advisory.NotAcquiredError{Key: key, Mode: m, Waited: time.Since(start)}
	if ctx.Err() != nil {
		e.Cause = bound.Cause(ctx)
	}
	e.Cause = l.whyUnchecked(e.Cause)
	answer := make(chan []advisory.Holder, 1)
	var gone atomic.Bool // nobody waits for the answer any more
	l.mu.Lock()
	s, err := l.frontSession()
	if err == nil {
		var hs []advisory.Holder
		s.submit(&op{
			query: func(ctx context.Context, conn *sql.Conn) error {
				hs = nil
				if gone.Load() {
					return errNothingHeard
				}
				return statement.Session{Ctx: ctx, On: conn}.Query(lockfn.Holders, lockfn.HoldersArgs(key), func(rows *sql.Rows) error {
					h, err := lockfn.ScanHolder(rows)
					hs = append(hs, h)
					return err
				})
			},
			done: func(_ bool, _ uint64, err error) {
				if err != nil {
					answer <- nil // and the query may still be under way
				} else {
					answer <- hs
				}
			},
		})
	}
	l.mu.Unlock()
	if err == nil {
		select {
		case e.Holders = <-answer:
		case <-time.After(bound.Grace):
			gone.Store(true)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range e.Holders {
		for s := range l.sessions {
			if s.open && s.pid == e.Holders[i].PID {
				e.Holders[i].Local = true
				if h := s.holds[key]; h != nil {
					for u := range h.users {
						e.Holders[i].Label, e.Holders[i].Since = u.settings.Label, u.since
					}
				}
			}
		}
	}
	return e
}

// TryDo runs fn under the lock if the key is free.
func (l *Locker) TryDo(ctx context.Context, key advisory.Key, fn func(ctx context.Context) error, opts ...advisory.LockerOption) (ran bool, err error) {
	if fn == nil {
		return false, lockfn.Error("try lock", key, advisory.Exclusive, work.ErrNilFn)
	}
	h, err := l.acquire(ctx, time.Now(), "try lock", key, opts, true)
	if h.hold == nil {
		return false, err
	}
	return true, h.do(ctx, fn)
}

// Do waits for the lock and runs fn under it.
func (l *Locker) Do(ctx context.Context, key advisory.Key, fn func(ctx context.Context) error, opts ...advisory.LockerOption) error {
	if fn == nil {
		return lockfn.Error("lock", key, advisory.Exclusive, work.ErrNilFn)
	}
	h, err := l.acquire(ctx, time.Now(), "lock", key, opts, false)
	if h.hold == nil {
		return err
	}
	return h.do(ctx, fn)
}

// begin takes note that work begins: Shutdown waits for its end, also if the lock is lost.
func (h *handle) begin() {
	l := h.hold.gate.l
	l.mu.Lock()
	defer l.mu.Unlock()
	h.works = true
	l.counts(h)
}

// do runs fn with a ctx that ends with ctx or with the lock, and releases the lock.
func (h *handle) do(ctx context.Context, fn func(context.Context) error) error {
	h.begin()
	return work.Under(ctx, h, fn, func() error { return h.unlock(true) }, func(lost error) error { return h.wrap("work under", lost) })
}

// Wrap returns a job function that runs fn under the lock, or returns an error that is
// [advisory.ErrNotAcquired] if the key is not free, at once or within [advisory.MaxWait]:
// middleware for schedulers.
func (l *Locker) Wrap(key advisory.Key, fn func(ctx context.Context) error, opts ...advisory.LockerOption) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		opts := opts
		if s, err := settings.Locker(opts); err == nil && s.MaxWait == nil {
			opts = append(opts[:len(opts):len(opts)], advisory.MaxWait(0))
		}
		return l.Do(ctx, key, fn, opts...)
	}
}

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
	if l.state != nil {
		return l.state
	}
	s, err := l.frontSession()
	if err == nil {
		s.submit(&op{done: func(_ bool, _ uint64, err error) { answer <- err }})
	}
	return err
}

// Holds reports whether this Locker holds key, by its own clock and without a round
// trip: for a health check.
func (l *Locker) Holds(key advisory.Key) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.gates[key]
	if g == nil || g.hold == nil || len(g.hold.users) == 0 {
		return false
	}
	return time.Since(g.hold.session.answered) < l.times.Deadline
}

// watch returns what is closed when the next statement about some key, or wait for one, is
// done. The mutex is held.
func (l *Locker) watch() <-chan struct{} {
	if l.change == nil {
		l.change = make(chan struct{})
	}
	return l.change
}

func (l *Locker) wakeWatchers() {
	if l.change != nil {
		close(l.change)
		l.change = nil
	}
}

// Stats are numbers of the moment.
type Stats struct {
	Sessions int // connections in use
	Held     int // locks held on the server
	Users    int // locks that callers have, and work under lost ones; readers share one of the server
	Waiting  int // callers that wait
}

// Stats returns the numbers of the moment. It looks at each key that is held or waited for: some
// nanoseconds each, with the mutex held. To count callers as they come and go instead would put
// a counter into each of the ways in which a request is settled.
func (l *Locker) Stats() Stats {
	if l == nil {
		return Stats{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	st := Stats{Sessions: len(l.sessions), Held: int(l.held), Users: l.users}
	for _, g := range l.gates {
		st.Waiting += g.queue.len()
	}
	return st
}

// counts counts h among the users, for which Shutdown waits. The mutex is held.
func (l *Locker) counts(h *handle) {
	if !h.counted {
		h.counted = true
		l.users++
	}
}

// countsNoMore takes note that h is given back, or lost with no work under it. The mutex
// is held.
func (l *Locker) countsNoMore(h *handle) {
	if !h.counted {
		return
	}
	h.counted = false
	if l.users--; l.users == 0 && l.state != nil {
		l.drain()
	}
}

func (l *Locker) drain() {
	select {
	case <-l.drained:
	default:
		close(l.drained)
	}
}

// refuse gives no new locks from now on, and ends all waits.
func (l *Locker) refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == nil {
		l.state = advisory.ErrClosed
	}
	for _, g := range l.gates {
		g.queue.settle(l.state)
		if g.waiter != nil {
			g.waiter.hurry()
		}
		g.advance()
	}
	l.wakeWatchers()
	if l.users == 0 {
		l.drain()
	}
}

// Shutdown gives no new locks and waits until those that are held are released, also those
// of which [HoldAtLeast] has put off the release, or until ctx ends. Then it closes the Locker.
// For a lock that is lost it does not wait, but for the function of Do, TryDo, Lead or a
// Semaphore that still runs under it. It returns an error if ctx ended first, and as Close does.
func (l *Locker) Shutdown(ctx context.Context) error {
	switch {
	case errors.Is(l.usable(), errNotMade):
		return fmt.Errorf("pgadvisory: shutdown: %w", errNotMade)
	case ctx == nil:
		return fmt.Errorf("pgadvisory: shutdown: %w", errNilCtx)
	}
	l.refuse()
	var err error
	select {
	case <-l.drained:
	case <-ctx.Done():
		err = fmt.Errorf("pgadvisory: shutdown: locks were still held: %w", bound.Cause(ctx))
	}
	return errors.Join(err, l.end(ctx))
}

// Close gives no new locks, waits for releases that [HoldAtLeast] has put off, and ends
// the Locker: the Contexts of its locks end with [advisory.ErrClosed], and its connections
// are destroyed, which frees the locks on the server. It takes two seconds at most beyond
// the releases that were put off.
//
// It returns an error if the server did not answer within that time and the connection held
// locks: the server frees them within the failover time. A connection that is lost already, or
// that holds nothing, is no reason for an error.
func (l *Locker) Close() error {
	if errors.Is(l.usable(), errNotMade) {
		return fmt.Errorf("pgadvisory: close: %w", errNotMade)
	}
	l.refuse()
	return l.end(context.Background())
}

// end closes the Locker, after the releases that were put off, or when ctx ends.
func (l *Locker) end(ctx context.Context) error {
	l.mu.Lock()
	l.prompt = true
	l.mu.Unlock()
	due := make(chan struct{})
	go func() { l.deferred.Wait(); close(due) }()
	select {
	case <-due:
	case <-ctx.Done():
	}
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.ending)
	}
	var live []*session
	var holding []bool
	for s := range l.sessions {
		s.stop = true
		live, holding = append(live, s), append(holding, len(s.holds) > 0)
		for _, h := range s.holds {
			h.lost(advisory.ErrClosed)
		}
		clear(s.holds)
		if s.slicing || !s.open {
			s.cancel()
		}
		s.nudge()
	}
	for s := range l.lost {
		if s.orphans == 0 { // else it is kept for the work under its locks
			live, holding = append(live, s), append(holding, false)
		}
	}
	l.mu.Unlock()
	return l.ended(live, holding)
}

// ended waits until the sessions have closed their connections, and checks of the server are
// over. It gives up the sessions that take too long, and returns an error if one of these held
// locks.
func (l *Locker) ended(live []*session, holding []bool) error {
	gone := make(chan struct{})
	go func() {
		l.checks.Wait()
		for _, s := range live {
			<-s.buried
		}
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-time.After(bound.Grace + bound.Abort):
	}
	var err error
	for i, s := range live {
		select {
		case <-s.buried:
			continue
		default:
		}
		s.cancel()
		if holding[i] {
			err = fmt.Errorf("pgadvisory: close: locks may be held on the server for the failover time: %w", bound.ErrNoAnswer)
		}
	}
	return err
}

// observer returns the Observer of a call, else that of the Locker, else nil.
func (l *Locker) observer(s settings.Call) advisory.Observer {
	if s.Observer != nil {
		return s.Observer
	}
	return l.wide()
}

// wide returns the Observer of the Locker, or nil.
func (l *Locker) wide() advisory.Observer {
	o, _ := l.settings.Observer.(advisory.Observer)
	return o
}

func (l *Locker) observe(e advisory.Event) {
	if o := l.wide(); o != nil {
		o.Observe(context.Background(), e)
	}
}

// tell tells how a call ended: with h, or without if that is nil. If the Observer panics
// nobody learns that the lock is held, and it is released.
func (l *Locker) tell(ctx context.Context, s settings.Call, key advisory.Key, h *handle, start time.Time, err error) {
	o := l.observer(s)
	if o == nil {
		return
	}
	e := advisory.Event{Kind: advisory.NotAcquired, Key: key, Mode: s.Mode, Label: s.Label, Waited: time.Since(start), Err: err}
	told := false
	if h != nil {
		e.Kind, e.Key, e.Local, e.PID = advisory.Acquired, h.key, h.local, h.hold.session.pid
		defer func() {
			if !told {
				giveBack(advisory.Locks{h})
			}
		}()
	}
	o.Observe(ctx, e)
	told = true
}

// tellLoss tells of a lost hold, later: nobody's callback runs in here. The mutex is held.
func (l *Locker) tellLoss(h *hold, cause error) {
	for u := range h.users {
		if o := l.observer(u.settings); o != nil {
			e := advisory.Event{Kind: advisory.Lost, Key: u.key, Mode: u.mode, Label: u.settings.Label, Held: time.Since(u.since), PID: h.session.pid, Err: cause}
			go o.Observe(u.ctx, e)
		}
	}
}
