package locker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/dbconn"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/pooler"
	"github.com/pgadvisory/pgadvisory/internal/statement"
)

// A session is one connection of a Locker, and the goroutine that owns it. Callers
// submit ops; the owner sends what has queued up as one statement. So the more
// callers there are, the more each round trip does.
//
// A session takes and holds locks, and is pinged, or waits for one key. One that holds waits
// only if no other can, in slices short enough for its deadline, and for no longer than nobody
// waits for what it holds: else others would see a deadlock in which there is none.
type session struct {
	l      *Locker
	ctx    context.Context // of the driver's calls; ends when the connection is to be given up
	cancel context.CancelFunc
	// unstuck calls unstick off.
	unstuck func() bool
	wake    chan struct{}

	// Guarded by the Locker's mutex.
	queue    []*op
	inFlight []*op
	holds    map[advisory.Key]*hold
	open     bool
	pid      int
	dead     error
	buried   chan struct{} // closed when the connection is
	stop     bool          // to be closed
	answered time.Time     // when the last statement that was answered was sent
	watch    *time.Timer
	waitFor  *gate // what it waits for
	waitMode advisory.Mode
	hurried  bool // its slice is to end early
	slicing  bool
	slices   int       // how many it has begun
	target   bool      // its slice is under way: a cancel may aim at it
	aimed    aim       // the last cancel
	barred   time.Time // it may not wait before: somebody waited for what it holds
	spared   time.Time // from being cancelled until then: it was just before
	idle     time.Time // since when it has nothing to do
	orphans  int       // locks of a dead session whose callers have not returned

	// The owner's own.
	conn   *sql.Conn
	pinged time.Time
	driver atomic.Pointer[dbconn.Driver] // for giving the connection up
	quiet  atomic.Bool                   // a statement is under way that does not know of the end of ctx
	batch  *sql.Stmt
}

// An op is something for the owner to do.
type op struct {
	req   *lockfn.Request                        // a line of a batch; or
	tries int64                                  // how many locks it may take
	token bool                                   // draw a token; or
	query func(context.Context, *sql.Conn) error // anything else; or a ping
	done  func(ok bool, token uint64, err error) // called with the Locker's mutex held
	told  bool                                   // done was called
}

// tell calls done, once. The Locker's mutex is held.
func (o *op) tell(ok bool, token uint64, err error) {
	if !o.told {
		o.told = true
		o.done(ok, token, err)
	}
}

// newSession starts a session. The Locker's mutex is held.
func (l *Locker) newSession() *session {
	s := &session{l: l, wake: make(chan struct{}, 1), buried: make(chan struct{}), holds: map[advisory.Key]*hold{}, idle: time.Now()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.unstuck = context.AfterFunc(s.ctx, s.unstick)
	l.sessions[s] = struct{}{}
	go s.run()
	return s
}

// submit queues o. The Locker's mutex is held.
func (s *session) submit(o *op) {
	if s.dead != nil {
		// Not from here: the caller is in the middle of something.
		go func() {
			s.l.mu.Lock()
			defer s.l.mu.Unlock()
			o.tell(false, 0, s.dead)
		}()
		return
	}
	s.queue = append(s.queue, o)
	if s.waitFor != nil {
		s.hurry() // a lock that it holds is not to be kept for the wait's sake
	}
	s.nudge()
}

// gone takes note that the connection is closed.
func (s *session) gone() {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	delete(s.l.lost, s)
	close(s.buried)
}

func (s *session) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// fresh reports whether the server was heard of within a heartbeat.
func (s *session) fresh() bool {
	return s.dead == nil && time.Since(s.answered) < s.l.times.Heartbeat
}

// run is the owner.
func (s *session) run() {
	defer s.gone()
	defer s.bury()
	if err := s.connect(); err != nil {
		s.l.mu.Lock()
		s.lose(err)
		s.l.mu.Unlock()
		return
	}
	tick := time.NewTicker(s.l.times.Heartbeat)
	defer tick.Stop()
	for {
		s.l.mu.Lock()
		s.inFlight, s.queue = s.queue, nil
		ops, dead, stop, waits := s.inFlight, s.dead != nil, s.stop, s.waitFor
		s.l.mu.Unlock()
		switch {
		case dead || stop && len(ops) == 0:
			return
		case len(ops) > 0:
			s.serve(ops)
			if time.Since(s.pinged) >= s.l.times.Heartbeat {
				s.ping()                        // it guards waiters, too, and must not be starved
				tick.Reset(s.l.times.Heartbeat) // nor come twice: a second cancel is an error in the log
			}
		case waits != nil:
			s.slice(waits)
		default:
			select {
			case <-s.wake:
			case <-tick.C:
				s.ping()
			}
		}
	}
}

// What keeps the failover time from being kept.
var (
	errNoUserTimeout = errors.New("the server's platform has no tcp_user_timeout: if its packets to this client are lost, a lock may be kept for longer than the failover time")
	errProxied       = errors.New("there is a proxy in between, such as a pooler in session mode: if this client vanishes, a lock is kept until the proxy finds out, which may take longer than the failover time")
)

var errPoolOfOne = errors.New("open a session for locks: the pool has MaxOpenConns 1, so that work under a lock would wait for ever for a connection of its own: raise it to 2 or more")

// connect opens the connection, in bounded time.
func (s *session) connect() error {
	if n := s.l.db.Stats().MaxOpenConnections; n == 1 {
		return errPoolOfOne
	}
	late, stop := context.WithCancel(s.ctx)
	defer stop()
	limit := time.AfterFunc(connectTime, stop)
	defer limit.Stop()
	setUp := func(ctx context.Context) (*fit, error) { return s.setUpAlive(ctx, limit) }
	o, err := bound.Call(late, setUp, s.giveUp, func(o *fit, err error) {
		if err == nil {
			o.close()
		}
	})
	if err != nil {
		if st := s.l.db.Stats(); st.MaxOpenConnections > 0 && st.InUse >= st.MaxOpenConnections {
			err = fmt.Errorf("all %d connections of the pool are in use, raise MaxOpenConns: %w", st.MaxOpenConnections, err)
		}
		return fmt.Errorf("open a session for locks: %w", err)
	}
	s.conn, s.batch = o.conn, o.batch
	s.l.mu.Lock()
	s.open, s.pid = true, o.pid
	s.l.room.size = o.table
	s.l.polls = o.deadlock <= s.l.times.Heartbeat
	s.heard(o.sent)
	s.watch = time.AfterFunc(s.l.times.Deadline, s.overdue)
	s.l.mu.Unlock()
	e := advisory.Event{Kind: advisory.SessionOpened, PID: o.pid, Err: o.unchecked}
	if !o.bounded {
		e.Err = errors.Join(e.Err, errNoUserTimeout)
	}
	if o.proxied {
		e.Err = errors.Join(e.Err, errProxied)
	}
	s.l.observe(e)
	return nil
}

// fit is a connection that is fit for locks.
type fit struct {
	conn  *sql.Conn
	batch *sql.Stmt
	pid   int
	table int64
	sent  time.Time // when the last statement that was answered was sent
	// deadlock is deadlock_timeout, or nought if there can be no slices.
	deadlock time.Duration
	// bounded: its platform lets go of a client that vanished in whatever way.
	bounded bool
	// proxied: its end of the link is not the client's, as far as the driver shows that.
	proxied bool
	// unchecked: why no pooler could be looked for.
	unchecked error
}

func (o *fit) close() {
	dbconn.Discard(o.conn)
	o.conn.Close()
}

// setUpAlive is setUp, again if the pool's idle connections turn out to be dead.
func (s *session) setUpAlive(ctx context.Context, limit *time.Timer) (*fit, error) {
	for idle := s.l.db.Stats().Idle; ; idle-- {
		o, err := s.setUp(ctx, limit)
		if err == nil || idle <= 0 || ctx.Err() != nil || errors.Is(err, advisory.ErrUnsafeServer) || !lockfn.LinkGone(err) {
			return o, err
		}
	}
}

// setUp opens a connection, makes it fit, and looks whether locks are real there. limit ends
// ctx. It may hang: lib/pq minds ctx only in part.
func (s *session) setUp(ctx context.Context, limit *time.Timer) (_ *fit, err error) {
	conn, err := dbconn.Take(ctx, s.l.db, func(conn *sql.Conn) error {
		var d dbconn.Driver
		s.driver.Store(&d)
		return conn.Raw(d.Keep)
	})
	if err != nil {
		return nil, err
	}
	o := &fit{conn: conn}
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	// First, for behind a pooler the settings would be made on sessions of others.
	if s.l.unchecked() {
		limit.Reset(checkTime + connectTime)
		err := s.l.checkFirst(ctx, conn)
		limit.Reset(connectTime)
		if _, ok := errors.AsType[uncheckedError](err); err != nil && !ok {
			return nil, err
		}
		o.unchecked = err
	}
	if _, err := conn.ExecContext(ctx, lockfn.SetAll(sessionSettings(s.l.times, s.l.settings))); err != nil {
		return nil, err
	}
	var (
		recovery    bool
		version     string
		userTimeout int64
		tcp         bool
		deadlock    int64
	)
	o.sent = time.Now()
	if err := conn.QueryRowContext(ctx, lockfn.About).Scan(&o.pid, &recovery, &version, &o.table, &userTimeout, &tcp, &deadlock); err != nil {
		return nil, err
	}
	if err := unsafeServer(recovery, version); err != nil {
		return nil, err
	}
	o.bounded = !tcp || userTimeout != 0
	if told, ok := pooler.On(ctx, conn).ToldPID(); ok {
		o.proxied = told != int64(o.pid)
	}
	o.deadlock = time.Duration(deadlock) * time.Millisecond
	o.batch, err = conn.PrepareContext(ctx, lockfn.Batch(s.l.settings.Fencing, o.pid))
	return o, err
}

func unsafeServer(recovery bool, version string) error {
	switch {
	case recovery:
		return lockfn.ErrStandby
	case !lockfn.IsPostgreSQL(version):
		return &advisory.UnsafeServerError{Reason: advisory.NotPostgreSQL, Detail: "version() is " + version}
	}
	return nil
}

// heard takes note of an answer to what was sent at that time; of none if that is zero. The
// mutex is held.
func (s *session) heard(sent time.Time) {
	if sent.After(s.answered) {
		s.answered = sent
	}
}

// serve sends what has queued up.
func (s *session) serve(ops []*op) {
	var batch, others []*op
	for _, o := range ops {
		if o.req != nil {
			batch = append(batch, o)
		} else {
			others = append(others, o)
		}
	}
	for len(batch) > 0 {
		now, later, alive := s.admit(batch)
		if !alive || len(now) > 0 && !s.sendBatch(now) {
			return
		}
		batch = later
	}
	var pings []*op
	for _, o := range others {
		if o.query == nil && !o.token {
			pings = append(pings, o)
			continue
		}
		now, _, alive := s.admit([]*op{o})
		if !alive || len(now) > 0 && !s.sendOne(o) {
			return
		}
		if time.Since(s.pinged) >= s.l.times.Heartbeat {
			s.ping()
		}
	}
	if len(pings) > 0 {
		sent := time.Now()
		_, err := s.conn.ExecContext(s.ctx, lockfn.Ping)
		if err != nil && !lockfn.LinkGone(err) {
			err = nil // an answer, too
		}
		s.finish(pings, sent, err, func(o *op) { o.tell(true, 0, nil) })
	}
}

// sendOne does what is no line of a batch. It does it again if somebody cancels it.
func (s *session) sendOne(o *op) bool {
	var token uint64
	for {
		sent := time.Now()
		var err error
		if o.token {
			token, err = s.drawToken()
		} else {
			err = o.query(s.ctx, s.conn)
			if err == errNothingHeard {
				sent, err = time.Time{}, nil
			}
		}
		if err == nil || lockfn.LinkGone(err) {
			return s.finish([]*op{o}, sent, err, func(o *op) { o.tell(true, token, nil) })
		}
		// It may have taken a lock before it failed.
		if !s.reconcile(nil, err) {
			return false
		}
		if !lockfn.Canceled(err) {
			return s.finish([]*op{o}, sent, nil, func(o *op) { o.tell(false, 0, err) })
		}
	}
}

// errNothingHeard is what a query returns that sent nothing, or has told what it heard.
var errNothingHeard = errors.New("nothing was heard of the server")

func (s *session) drawToken() (token uint64, err error) {
	err = s.conn.QueryRowContext(s.ctx, "SELECT "+lockfn.Token).Scan(&token)
	return token, err
}

// sendBatch sends the ops as one statement.
func (s *session) sendBatch(ops []*op) bool {
	reqs := make([]lockfn.Request, len(ops))
	for i, o := range ops {
		reqs[i] = *o.req
	}
	sent := time.Now()
	pid, answers, token, err := s.exchange(reqs)
	if err == nil && pid != s.pid {
		return s.finish(nil, sent, s.changed(pid), nil)
	}
	if err != nil && lockfn.SQLState(err) != "" {
		// The statement failed and the link works.
		return s.reconcile(ops, err)
	}
	i := -1
	return s.finish(ops, sent, err, func(o *op) {
		i++
		o.tell(answers[i] == 't', token, nil)
	})
}

// changed is the error of an answer of another session.
func (s *session) changed(pid int) error {
	return &advisory.UnsafeServerError{Reason: advisory.Pooler, Detail: fmt.Sprintf("the session of pid %d was answered by pid %d", s.pid, pid)}
}

// finish delivers the answers of ops, or loses the session if there is an error.
func (s *session) finish(ops []*op, sent time.Time, err error, deliver func(*op)) bool {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if s.dead != nil { // overdue meanwhile: all ops have been told
		return false
	}
	if err != nil {
		s.lose(err)
		return false
	}
	if s.late(sent) {
		return false
	}
	s.heard(sent)
	for i, o := range ops {
		if i%chunk == chunk-1 && !s.pause() {
			return false
		}
		deliver(o)
	}
	return true
}

// pause lets others have the mutex, which is held, while the answers of a large batch are
// delivered. It reports whether the session lives still; if not, all ops have been answered.
func (s *session) pause() bool {
	s.l.mu.Unlock()
	s.l.mu.Lock()
	return s.dead == nil
}

// reconcile restores order after a batch that failed: it keeps what it had taken before.
// What the server has and we did not know of is released; what it does not have any
// more was released. If that is cancelled, too, it begins again.
func (s *session) reconcile(ops []*op, cause error) bool {
	for {
		sent := time.Now()
		done, err := s.release(ops)
		if lockfn.Canceled(err) {
			if !s.finish(nil, sent, nil, nil) {
				return false
			}
			continue
		}
		if err != nil {
			return s.finish(nil, sent, errors.Join(cause, err), nil)
		}
		return s.finish(ops, sent, nil, func(o *op) {
			if done[o] {
				o.tell(true, 0, nil)
			} else {
				o.tell(false, 0, lockfn.Meaning(cause))
			}
		})
	}
}

// release releases on the server what this session does not know of, and the locks that
// ops were to unlock. It returns those ops that are done then.
func (s *session) release(ops []*op) (done map[*op]bool, err error) {
	have, err := s.heldOnServer()
	if err != nil {
		return nil, err
	}
	want := map[advisory.Key]advisory.Mode{}
	s.l.mu.Lock()
	for k, h := range s.holds {
		want[k] = h.mode
	}
	s.l.mu.Unlock()
	done = map[*op]bool{}
	for _, o := range ops {
		k := o.req.Key
		switch o.req.Op {
		case lockfn.OpUnlock:
			done[o] = true
			delete(want, k)
		case lockfn.OpDowngrade:
			if !slices.Contains(have, advisory.HeldLock{Key: k, Mode: advisory.Exclusive}) {
				done[o] = true
				want[k] = advisory.Shared
			}
		}
	}
	for _, h := range have {
		if m, ok := want[h.Key]; ok && m == h.Mode {
			delete(want, h.Key)
		} else if _, err := s.conn.ExecContext(s.ctx, lockfn.Unlock(h.Key, h.Mode)); err != nil {
			return nil, err
		}
	}
	if len(want) > 0 {
		return nil, errLockGone
	}
	return done, nil
}

func (s *session) heldOnServer() (locks []advisory.HeldLock, err error) {
	err = statement.Session{Ctx: s.ctx, On: s.conn}.Query(lockfn.HeldOn, nil, func(rows *sql.Rows) error {
		l, pid, err := lockfn.ScanHeldOn(rows)
		switch {
		case err != nil:
		case pid == 0:
			locks = append(locks, l)
		case pid != s.pid:
			return s.changed(pid)
		}
		return err
	})
	return locks, err
}

// ping keeps the session alive and, if it is the front session, the waiters out of the
// way of others. Readers it keeps out of the way of writers.
func (s *session) ping() {
	s.l.mu.Lock()
	text := lockfn.Ping
	var aim aim
	if s.l.front == s {
		if waiters, leaving := s.l.slicing(); len(waiters)+len(leaving) > 0 {
			text, aim = lockfn.Guard(pids(waiters), pids(leaving)), s.l.aimAt(waiters, leaving)
		}
		if s.l.unchecked() {
			s.l.checkLater()
		}
	} else if len(s.holds) == 0 && s.waitFor == nil && time.Since(s.idle) > idleTime {
		s.stop = true
	}
	shared := false
	for _, h := range s.holds {
		shared = shared || h.mode == advisory.Shared
	}
	s.l.mu.Unlock()
	sent := time.Now()
	s.pinged = sent
	_, err := s.conn.ExecContext(s.ctx, text)
	aim.over()
	if err != nil && !lockfn.LinkGone(err) {
		err = nil // an answer, too: a cancel that came too late for a slice, say
	}
	if !s.finish(nil, sent, err, nil) {
		return
	}
	if shared {
		s.yield()
	}
}

// ask asks what is asked again with the next ping, and reports whether there was an answer.
func (s *session) ask(text string, row func(*sql.Rows) error) bool {
	sent := time.Now()
	err := statement.Session{Ctx: s.ctx, On: s.conn}.Query(text, nil, row)
	if err != nil && !lockfn.LinkGone(err) {
		return false
	}
	return s.finish(nil, sent, err, nil)
}

// yield has no more readers join a lock that somebody waits for on the server: there may
// always be one.
func (s *session) yield() {
	wanted := map[advisory.Key]bool{}
	if !s.ask(lockfn.Wanted, func(rows *sql.Rows) error {
		l, err := lockfn.ScanHeld(rows)
		wanted[l.Key] = true
		return err
	}) {
		return
	}
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	for k, h := range s.holds {
		if h.wanted = wanted[k]; !h.wanted {
			h.gate.advance()
		}
	}
}

// connectTime bounds the wait for a connection.
const connectTime = 10 * time.Second

// idleTime is for how long a session that has nothing to do is kept.
const idleTime = 10 * time.Second
