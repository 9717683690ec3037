package locker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// A proof is what a Locker knows of one server's being the primary still. A witness has the server
// commit something that its standbys confirm: see witness.go, which has the arithmetic. All sessions
// on that server have the proof in common. If it lapses they are lost, with their locks.
type proof struct {
	l       *Locker
	server  string // as lockfn.ServerID has it
	ctx     context.Context
	cancel  context.CancelFunc
	settled chan struct{} // closed when the proof is sought no more

	// Guarded by the Locker's mutex.
	phase    proofPhase
	err      error // why it has ended
	sessions map[*session]struct{}
	opens    time.Time // when the server's grace is over: see lockfn.Promoted
	// since is when the last confirmed beat was sent; before there is one, when the first beat was.
	since   time.Time
	watch   *time.Timer // ends the proof D after that
	beating time.Time   // when the beat was sent that is not answered; zero if there is none
	doubt   error       // why the last beat was not confirmed; nil if it was
	alone   bool        // the last beat counted although there are no names: see WithStandbyIfNamed
	open    bool        // a witness has its connection
	about   about       // the server, as the last witness found it

	slow *time.Timer // has the Observer learn of a beat without an answer; nil without an Observer
}

// A proofPhase is how much a proof shows.
type proofPhase uint8

const (
	proofSought proofPhase = 1 << iota // nothing yet: sessions on the server wait, and give out no lock
	proofHeld                          // the server was the primary less than D ago
	proofEnded                         // no longer; or nobody needs it
)

func (p proofPhase) String() string {
	switch p {
	case proofSought:
		return "sought"
	case proofHeld:
		return "held"
	case proofEnded:
		return "ended"
	}
	return "of no phase"
}

// is reports whether p is one of the given phases.
func (p proofPhase) is(any proofPhase) bool { return p&any != 0 }

// joinProof has s take part in the proof for a server. It begins one if there is none.
func (s *session) joinProof(server string) (*proof, error) {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, advisory.ErrClosed
	case !s.alive(): // nobody would have it leave
		return nil, s.err
	}
	p := l.proofs[server]
	if p == nil {
		p = &proof{l: l, server: server, phase: proofSought, settled: make(chan struct{}), sessions: map[*session]struct{}{}}
		p.ctx, p.cancel = context.WithCancel(context.Background())
		l.proofs[server] = p
		l.checks.Go(p.run)
	}
	s.proof = p
	p.sessions[s] = struct{}{}
	return p, nil
}

// leaveProof has s, which has ended, take part no more. The last one ends the proof. The mutex is held.
func (s *session) leaveProof() {
	if p := s.proof; p != nil {
		delete(p.sessions, s)
		if len(p.sessions) == 0 {
			p.end(errSessionGone)
		}
	}
}

// beginBeat marks that a beat is sent. The first one starts the deadline.
func (p *proof) beginBeat() (sent time.Time) {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	sent = time.Now()
	p.beating = sent
	p.awaitBeat()
	if p.since.IsZero() && p.phase != proofEnded {
		p.since = sent
		p.watch = time.AfterFunc(p.l.times.Deadline, p.overdue)
	}
	return sent
}

// confirm records that standbys have confirmed the beat that was sent at that time.
func (p *proof) confirm(sent time.Time) {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	p.l.wasConfirmed = true
	p.count(sent, false)
}

// count has D begin when the beat was sent, which was confirmed, or was answered alone, without
// names of standbys. The mutex is held.
func (p *proof) count(sent time.Time, alone bool) {
	p.beating, p.doubt, p.alone = time.Time{}, nil, alone
	if alone {
		p.doubt = errNoStandby
	}
	switch {
	case p.phase == proofEnded:
		return
	case p.left() <= 0:
		p.lapse() // its timer comes after the answer: this process was stopped, say
		return
	}
	p.since = sent
	p.watch.Reset(p.left())
	if p.phase == proofSought && p.lasts() && !time.Now().Before(p.opens) {
		p.phase = proofHeld
		close(p.settled)
	}
	p.l.reportStanding()
}

// lasts reports whether there is time for another beat. If a beat waited for a standby for nearly D, the
// locks that it let out would be lost at once. Then the next one, which is sent now, lets them out or
// comes too late. The mutex is held.
func (p *proof) lasts() bool { return p.left() >= p.l.times.Beat }

// doubted records why the last beat was not confirmed.
func (p *proof) doubted(err error) {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	p.fail(err)
}

// fail records why the last beat was not confirmed. A proof that is sought ends so, and any if the
// server is an old primary. The mutex is held.
func (p *proof) fail(err error) {
	p.beating, p.doubt, p.alone = time.Time{}, err, false
	if p.phase == proofSought || stalePrimary(err) {
		p.end(err)
	}
	p.l.reportStanding()
}

// left is what is left of the deadline.
func (p *proof) left() time.Duration { return p.l.times.Deadline - time.Since(p.since) }

// overdue is called when the deadline may have passed.
func (p *proof) overdue() {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if p.phase == proofEnded {
		return
	}
	if left := p.left(); left > 0 {
		p.watch.Reset(left)
		return
	}
	p.lapse()
}

// lapse ends the proof because no beat was confirmed within the deadline. The mutex is held.
func (p *proof) lapse() {
	why := p.whyDoubted()
	if why == nil && !p.beating.IsZero() {
		why = p.waits()
	}
	p.end(&unconfirmedError{within: p.l.times.Deadline, why: why})
}

// end ends the proof. Sessions that are open are lost; one that is being opened finds the proof ended.
// The mutex is held.
func (p *proof) end(err error) {
	if p.phase == proofEnded {
		return
	}
	if p.phase == proofSought {
		close(p.settled)
	}
	p.phase, p.err = proofEnded, err
	if p.watch != nil {
		p.watch.Stop()
	}
	if p.slow != nil {
		p.slow.Stop()
	}
	delete(p.l.proofs, p.server)
	p.cancel()
	for s := range p.sessions {
		if s.opened() {
			s.lose(err)
		}
	}
	p.l.reportStanding() // another may be the worst now
}

// failure returns why the proof has ended, or nil.
func (p *proof) failure() error {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	return p.err
}

// An unconfirmedError is that no beat was confirmed within the deadline. The server still has the
// locks, as after errOverdue: the connection is kept for the work under them.
type unconfirmedError struct {
	within time.Duration
	why    error // nil if it is not known
}

func (e *unconfirmedError) Error() string {
	text := fmt.Sprintf("%v within %v", advisory.ErrUnconfirmed, e.within)
	if e.why != nil {
		text += ": " + e.why.Error()
	}
	return text + " (see pg_stat_replication: is a standby away, or was another server promoted?)"
}

func (e *unconfirmedError) Unwrap() []error { return []error{advisory.ErrUnconfirmed, errOverdue} }

// A soughtError says why no lock is given out yet.
type soughtError struct{ why string }

func (e *soughtError) Error() string {
	return fmt.Sprintf("%v: no lock is given out yet: %s", advisory.ErrUnconfirmed, e.why)
}
func (e *soughtError) Unwrap() error { return advisory.ErrUnconfirmed }

// whyUnproven adds the reason to err if no lock could be given out for want of a proof.
func (l *Locker) whyUnproven(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.proofs {
		if p.phase != proofSought {
			continue
		}
		sought := &soughtError{"no standby has confirmed a commit in time yet"}
		if left := time.Until(p.opens); left > 0 {
			sought.why = fmt.Sprintf("this server was promoted, and the locks of the old primary may last for another %v", left.Round(time.Millisecond))
		}
		if err == nil {
			return sought
		}
		return fmt.Errorf("%w: %w", err, sought)
	}
	return err
}

// proven reports whether s's server was shown to be the primary within the deadline, or need not be.
// The mutex is held.
func (s *session) proven() bool {
	p := s.proof
	return p == nil || p.phase == proofHeld && p.left() > 0
}

// loseIfUnproven ends the session if its proof has lapsed, though its timer may be late. The mutex is
// held.
func (s *session) loseIfUnproven() bool {
	if s.proven() {
		return false
	}
	if s.proof.phase != proofEnded {
		s.proof.lapse()
	}
	s.lose(s.proof.err)
	return true
}

// rest has the Locker close its only session when that had nothing to do for a while. An idle
// Locker with a proof would go on having the server commit. The mutex is held.
func (s *session) rest() {
	if s.proof == nil || len(s.l.sessions) > 1 || len(s.holds) > 0 || len(s.queue) > 0 || time.Since(s.idleSince) <= idleTime {
		return
	}
	for _, o := range s.inFlight {
		if !o.answered {
			return
		}
	}
	s.closing, s.l.front = true, nil
}

var errPoolOfTwo = errors.New("WithStandby needs a connection more, and the pool has MaxOpenConns 2, so that work under a lock would wait without end for a connection of its own: raise it to 3 at least, better to what the work uses and 5")
