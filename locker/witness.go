package locker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/dbconn"
	"github.com/pgadvisory/pgadvisory/internal/failover"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/option"
)

// A witness is a connection whose commits show that its server is still the primary. Such a commit, a
// beat, is answered when the synchronous standbys have it on disk.
//
// # The arithmetic
//
// D is the deadline and G = D + 1 s the grace, of internal/failover. A beat is sent at time a by the
// clock of the holder's process. It commits at time x by the clock of the old primary. A standby has
// it on disk at time b. It is then confirmed.
//
//   - The holder's Context ends at a + D at the latest, if no later beat is confirmed.
//   - A standby that is promoted has replayed all that it had on disk. So the last commit that it
//     replayed is from x or later.
//   - The promoted server gives out its first lock at x + G by its own clock, or later.
//   - x is later than a. So between the holder's end and the first lock is at least G - D = 1 s, less
//     what the clock of the promoted server is ahead of the old one's.
//
// Commits may stand in the log in another order than that of their times, by as long as a backend takes
// from reading the clock to writing the record. That is part of the second, too.
//
// It does not matter when the confirmation reaches the holder, nor whether the standby was promoted
// meanwhile: D counts from a, and what the standby had on disk counts for G. A beat that waits for
// longer than D confirms nothing.
//
// After another start the promoted server does not know the time of that commit any more. It was
// promoted before it was started, so G counts from the start then. For the same reason G never
// counts from later than the witness's first question: a clock that is behind costs D + 1 s at most.
//
// With [WithStandbyIfNamed] a beat may be answered by a server without names of standbys. It counts
// from a, too, so that D is that of a ping. A standby may lack it, and the third step does not
// follow: the arithmetic holds again from the first beat that is confirmed.
//
// # Why it is a connection of its own
//
// A commit that waits for a standby waits for as long as the standby is away. Its session ends neither
// by a timeout nor by the death of its client. On the session that holds the locks it would keep them.
type witness struct {
	p      *proof
	conn   *sql.Conn
	driver dbconn.Driver // for giving the connection up
	left   bool          // a call did not return in time, and closes the connection when it does
}

// run has a witness beat until the proof ends.
func (p *proof) run() {
	for p.ctx.Err() == nil {
		if err := p.attend(); err != nil {
			p.doubted(err)
		}
		p.pause(p.l.times.Beat / 2)
	}
}

// attend opens a witness and has it beat until it fails or the proof ends.
func (p *proof) attend() error {
	w, err := p.openWitness()
	if err != nil {
		return fmt.Errorf("open a connection for confirmations: %w", err)
	}
	p.setOpen(true)
	defer w.close()
	defer p.setOpen(false)
	for p.ctx.Err() == nil {
		if err := p.checkTimeline(); err != nil {
			return err
		}
		sent := p.beginBeat()
		switch c, err := w.beat(); {
		case err != nil && lockfn.LinkGone(err):
			return fmt.Errorf("ask for a confirmation: %w", err)
		case err != nil:
			p.doubted(fmt.Errorf("ask for a confirmation: %w", lockfn.Meaning(err)))
		case c.Server != p.server:
			return errOtherServer
		case !c.Waited:
			return errNotWaited
		case !c.Named:
			p.unnamed(sent)
		default:
			p.confirm(sent)
		}
		p.pause(p.nextBeat(sent))
	}
	return nil
}

// setOpen records whether a witness has its connection.
func (p *proof) setOpen(open bool) {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	p.open = open
}

var errOtherServer = errors.New("the pool leads to two servers: this connection is not on the server of the session that takes the locks")

var errNotWaited = errors.New("synchronous_commit is not on any more: something in between has reset the session")

var errReloaded = fmt.Errorf("%w: the server read its settings again while the commit waited, which may have ended the wait", advisory.ErrUnconfirmed)

var errNoStandby error = &advisory.UnsafeServerError{Reason: advisory.NoStandby, Detail: "synchronous_standby_names is empty: set it so that each standby that may be promoted confirms, as docs/failover.md says"}

// nextBeat returns how long after now the next beat is due. At the end of the grace there is one, so
// that the first lock waits for nothing else.
func (p *proof) nextBeat(sent time.Time) time.Duration {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	next := time.Until(sent.Add(p.l.times.Beat))
	if open := time.Until(p.opens); p.phase == proofSought && open > 0 {
		next = min(next, open)
	}
	return next
}

// pause returns after d, or when the proof ends.
func (p *proof) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.ctx.Done():
	}
}

// openWitness opens a witness, in bounded time.
func (p *proof) openWitness() (*witness, error) {
	late, end := bound.Context(p.ctx)
	defer end()
	late, stop := context.WithTimeout(late, connectTime)
	defer stop()
	w := &witness{p: p}
	return bound.Call(late, func(ctx context.Context) (*witness, error) { return w, w.open(ctx) }, w.driver.GiveUp, func(_ *witness, err error) {
		if err == nil {
			w.close()
		}
	})
}

// open connects, and finds out how long the server's grace takes. It may hang.
func (w *witness) open(ctx context.Context) (err error) {
	l := w.p.l
	w.conn, err = dbconn.Take(ctx, l.db, func(conn *sql.Conn) error { return conn.Raw(w.driver.Keep) })
	if err != nil {
		if st := l.db.Stats(); st.MaxOpenConnections > 0 && st.InUse >= st.MaxOpenConnections {
			err = fmt.Errorf("all %d connections of the pool are in use, raise MaxOpenConns: %w", st.MaxOpenConnections, err)
		}
		return err
	}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if _, err := w.conn.ExecContext(ctx, lockfn.SetAll(witnessSettings(l.times, l.settings))); err != nil {
		return err
	}
	server, grace, err := lockfn.ScanPromoted(w.conn.QueryRowContext(ctx, lockfn.Promoted(l.times.Grace)))
	switch {
	case err != nil:
		return err
	case server != w.p.server:
		return errOtherServer
	}
	var a about
	if err := a.ask(ctx, w.conn); err != nil {
		return err
	}
	if err := l.newestTimeline(a); err != nil {
		return err
	}
	w.p.setServer(a, grace)
	return nil
}

// setServer records what the server is, and for how long it gives out no lock yet.
func (p *proof) setServer(a about, grace time.Duration) {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	p.about = a
	if p.phase == proofSought {
		p.opens = time.Now().Add(grace)
	}
}

// beat has the server commit, and returns what its answer confirms. It returns no later than two
// seconds after the end of the proof.
func (w *witness) beat() (lockfn.Confirmation, error) {
	late, end := bound.Context(w.p.ctx)
	defer end()
	c, err := bound.Call(late, func(ctx context.Context) (lockfn.Confirmation, error) {
		c, err := lockfn.ScanBeat(w.conn.QueryRowContext(ctx, lockfn.Beat))
		if err != nil {
			return c, err
		}
		var loaded string
		err = w.conn.QueryRowContext(ctx, lockfn.Loaded).Scan(&loaded)
		if err == nil && loaded != c.Loaded {
			err = errReloaded
		}
		return c, err
	}, w.driver.GiveUp, func(lockfn.Confirmation, error) { w.discard() })
	w.left = errors.Is(err, bound.ErrNoAnswer)
	return c, err
}

// close closes the connection, unless a call still does.
func (w *witness) close() {
	if !w.left {
		w.discard()
	}
}

func (w *witness) discard() {
	stuck := time.AfterFunc(2*bound.Abort, w.driver.GiveUp) // a driver may not mind its context
	defer stuck.Stop()
	dbconn.Discard(w.conn)
	w.conn.Close()
}

// witnessSettings returns what a witness sets: what a session does, and that its commits wait for the
// standbys, whatever the server and the role have.
func witnessSettings(t failover.Times, s option.Locker) []lockfn.Setting {
	const commit = "synchronous_commit"
	list := slices.DeleteFunc(sessionSettings(t, s), func(s lockfn.Setting) bool { return s.Name == commit })
	return append(list, lockfn.Setting{Name: commit, Value: "on"})
}

// prove waits for the proof that o's server is the primary, if the Locker requires it. Then it asks on
// o again, whose last answer may be old by then.
func (s *session) prove(o *fit) error {
	if !s.l.settings.Standby {
		return nil
	}
	if s.l.db.Stats().MaxOpenConnections == 2 {
		return errPoolOfTwo
	}
	server, _, err := s.askServer(o)
	if err != nil {
		return err
	}
	p, err := s.joinProof(server)
	if err != nil {
		return err
	}
	select {
	case <-p.settled:
	case <-s.ctx.Done():
		return bound.Cause(s.ctx)
	}
	if err := p.failure(); err != nil {
		return err
	}
	again, sent, err := s.askServer(o)
	if err == nil && again != server {
		err = errOtherServer
	}
	o.sent = sent
	return err
}

// askServer asks on o which server that is, in bounded time.
func (s *session) askServer(o *fit) (server string, sent time.Time, err error) {
	late, stop := context.WithTimeout(s.ctx, connectTime)
	defer stop()
	sent = time.Now()
	server, err = bound.Call(late, func(ctx context.Context) (server string, err error) {
		err = o.conn.QueryRowContext(ctx, lockfn.ServerID).Scan(&server)
		return server, err
	}, s.giveUp, func(string, error) {})
	return server, sent, err
}
