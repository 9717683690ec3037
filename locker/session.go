package locker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/dbconn"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
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
	// stopUnstick calls unstick off.
	stopUnstick func() bool
	wake        chan struct{}

	// Guarded by the Locker's mutex.
	phase     sessionPhase
	closing   bool  // it is to be closed once its queue is empty
	err       error // why it is lost or closed
	queue     []*op
	inFlight  []*op
	holds     map[advisory.Key]*hold
	pid       int
	gone      chan struct{} // closed when the connection is
	answered  time.Time     // when the last statement that was answered was sent
	watch     *time.Timer
	wait      sessionWait
	idleSince time.Time
	orphans   int    // locks of a lost session whose callers have not returned
	proof     *proof // that its server is the primary; nil if the Locker does not require one

	// The owner's own.
	conn   *sql.Conn
	pinged time.Time
	driver atomic.Pointer[dbconn.Driver] // for giving the connection up
	quiet  atomic.Bool                   // a statement is under way that does not know of the end of ctx
	batch  *sql.Stmt
}

// A sessionWait is a session's wait for a key on the server.
type sessionWait struct {
	gate   *gate // nil if it does not wait
	mode   advisory.Mode
	cut    bool      // its slice is to end early
	slices int       // how many slices the session has begun
	aim    cancelAim // the last cancel
	// noCancelBefore is when the next cancel may be sent: one was sent just before.
	noCancelBefore time.Time
	// notBefore is when the session may wait again: somebody waited for what it holds.
	notBefore time.Time
}

// newSession starts a session. The Locker's mutex is held.
func (l *Locker) newSession() *session {
	s := &session{l: l, phase: sessionOpening, wake: make(chan struct{}, 1), gone: make(chan struct{}), holds: map[advisory.Key]*hold{}, idleSince: time.Now()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.stopUnstick = context.AfterFunc(s.ctx, s.unstick)
	l.sessions[s] = struct{}{}
	go s.run()
	return s
}

// connectionGone takes note that the connection is closed.
func (s *session) connectionGone() {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	delete(s.l.lost, s)
	close(s.gone)
}

func (s *session) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// answeredLately reports whether the server was heard of within a heartbeat.
func (s *session) answeredLately() bool {
	return s.alive() && time.Since(s.answered) < s.l.times.Heartbeat && s.proven()
}

// run is the owner.
func (s *session) run() {
	defer s.connectionGone()
	defer s.closeConnection()
	if err := s.connect(); err != nil {
		s.l.mu.Lock()
		s.lose(err)
		s.l.mu.Unlock()
		return
	}
	due := time.NewTimer(0) // for the next ping
	defer due.Stop()
	for {
		s.l.mu.Lock()
		s.inFlight, s.queue = s.queue, nil
		ops, dead, stop, waits := s.inFlight, !s.alive(), s.closing, s.wait.gate
		s.l.mu.Unlock()
		switch {
		case dead || stop && len(ops) == 0:
			return
		case len(ops) > 0:
			s.serve(ops)
			if time.Since(s.pinged) >= s.l.times.Heartbeat {
				s.ping() // it guards waiters, too, and must not be starved
			}
		case waits != nil:
			s.slice(waits)
		default:
			// A heartbeat after the last ping was sent, whoever sent it: a second cancel is an error in
			// the server's log, and a late answer must not delay the next ping.
			due.Reset(s.l.times.Heartbeat - time.Since(s.pinged))
			select {
			case <-s.wake:
			case <-due.C:
				s.ping()
			}
		}
	}
}

// recordAnswer takes note of an answer to what was sent at that time; of none if that is zero. The
// mutex is held.
func (s *session) recordAnswer(sent time.Time) {
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
	for i, o := range others {
		if o.query == nil && !o.token {
			pings = append(pings, o)
			continue
		}
		if i > 0 && s.postpone(others[i:]) {
			break
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
		s.finish(pings, sent, err, func(o *op) { o.answer(true, 0, nil) })
	}
}

// postpone has the requests that have queued up meanwhile be sent before ops, and reports whether
// anything has queued up. Many queries must not keep the requests of others waiting. Queries keep their
// order: where each brings another, those behind would never be sent.
func (s *session) postpone(ops []*op) bool {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if len(s.queue) == 0 || !s.alive() {
		return false
	}
	s.queue = append(ops, s.queue...)
	return true
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
			return s.finish([]*op{o}, sent, err, func(o *op) { o.answer(true, token, nil) })
		}
		// It may have taken a lock before it failed.
		if !s.reconcile(nil, err) {
			return false
		}
		if !lockfn.Canceled(err) {
			return s.finish([]*op{o}, sent, nil, func(o *op) { o.answer(false, 0, err) })
		}
	}
}

// errNothingHeard is what a query returns that sent nothing, or has told what it heard.
var errNothingHeard = errors.New("nothing was heard of the server")

func (s *session) drawToken() (token uint64, err error) {
	var drawn string
	if err := s.conn.QueryRowContext(s.ctx, "SELECT "+lockfn.Token).Scan(&drawn); err != nil {
		return 0, err
	}
	return lockfn.ReadToken(drawn, s.l.settings.TokenEpoch)
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
		return s.finish(nil, sent, s.changed(fmt.Sprintf("pid %d", pid)), nil)
	}
	if err != nil && lockfn.SQLState(err) != "" {
		// The statement failed and the link works.
		return s.reconcile(ops, err)
	}
	i := -1
	return s.finish(ops, sent, err, func(o *op) {
		i++
		o.answer(answers[i] == 't', token, nil)
	})
}

// changed is the error of an answer of another session.
func (s *session) changed(by string) error {
	return &advisory.UnsafeServerError{Reason: advisory.Pooler, Detail: fmt.Sprintf("the session of pid %d was answered by %s", s.pid, by)}
}

// finish delivers the answers of ops, or loses the session if there is an error. It reports
// whether the session is alive; if not, all ops have been answered. Between the chunks of a large
// batch others have the mutex.
func (s *session) finish(ops []*op, sent time.Time, err error, deliver func(*op)) bool {
	n := min(len(ops), chunk)
	if !s.deliver(ops[:n], sent, err, deliver) {
		return false
	}
	for ops = ops[n:]; len(ops) > 0; ops = ops[n:] {
		n = min(len(ops), chunk)
		if !s.deliver(ops[:n], time.Time{}, nil, deliver) {
			return false
		}
	}
	return true
}

// deliver delivers the answers of one chunk.
func (s *session) deliver(ops []*op, sent time.Time, err error, deliver func(*op)) bool {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if !s.alive() { // overdue meanwhile
		return false
	}
	if err != nil {
		s.lose(err)
		return false
	}
	if s.loseIfLate(sent) {
		return false
	}
	s.recordAnswer(sent)
	for _, o := range ops {
		deliver(o)
	}
	if len(ops) > 0 {
		s.noteIdle()
	}
	return true
}

// ping keeps the session alive and, if it is the front session, the waiters out of the
// way of others. Readers it keeps out of the way of writers.
func (s *session) ping() {
	s.l.mu.Lock()
	text := lockfn.Ping
	var aim cancelAim
	if s.l.front == s {
		if waiters, leaving := s.l.cancelTargets(); len(waiters)+len(leaving) > 0 {
			text, aim = lockfn.Guard(pids(waiters), pids(leaving)), s.l.aimAt(waiters, leaving)
		}
		if s.l.checkDue() {
			s.l.checkLater()
		}
		s.rest()
	} else if len(s.holds) == 0 && s.wait.gate == nil && time.Since(s.idleSince) > idleTime {
		s.closing = true
	}
	shared := false
	for _, h := range s.holds {
		shared = shared || h.mode == advisory.Shared
	}
	s.l.mu.Unlock()
	sent := time.Now()
	s.pinged = sent
	_, err := s.conn.ExecContext(s.ctx, text)
	aim.finish()
	if err != nil && !lockfn.LinkGone(err) {
		err = nil // an answer, too: a cancel that came too late for a slice, say
	}
	if !s.finish(nil, sent, err, nil) {
		return
	}
	if shared {
		s.markWanted()
	}
}

// query asks what is asked again with the next ping, and reports whether there was an answer.
func (s *session) query(text string, row func(*sql.Rows) error) bool {
	sent := time.Now()
	err := statement.Session{Ctx: s.ctx, On: s.conn}.Query(text, nil, row)
	if err != nil && !lockfn.LinkGone(err) {
		return false
	}
	return s.finish(nil, sent, err, nil)
}

// idleTime is for how long a session that has nothing to do is kept.
const idleTime = 10 * time.Second
