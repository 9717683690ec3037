package adapt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/given"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// A Leader campaigns for a key and runs fn while it leads. Holds reports, by the clock, whether it
// has the key. *locker.Locker is one.
type Leader interface {
	Holds(key advisory.Key) bool
	Lead(ctx context.Context, key advisory.Key, fn func(ctx context.Context) error, opts ...advisory.LockerOption) error
}

// An Elector is an Elector in the shape of gocron's. Close it after the scheduler's Shutdown.
type Elector struct {
	l      Leader
	key    advisory.Key
	opts   []advisory.LockerOption
	cancel context.CancelFunc
	ended  chan struct{}

	mu   sync.Mutex
	term context.Context // of fn, in the present leadership or the last
	lock context.Context // of its lock; term ends a moment later than this
	err  error           // that the last campaign ended with
}

// GocronElector campaigns for key in the background and returns an Elector of
// github.com/go-co-op/gocron/v2:
//
//	elector := adapt.GocronElector(l, advisory.Name("billing", "scheduler"))
//	defer elector.Close()
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//
// All jobs of a scheduler then run on the one node that leads, whatever the clocks of the nodes
// say. Runs that are due while no node leads are skipped: after the start, and for as long as a
// failover takes.
//
// The campaign starts again after a loss and after an error, such as a server in recovery. It
// ends with [Elector.Close], after [advisory.ErrClosed] and [advisory.ErrInvalidKey].
//
// gocron asks the Elector before a job and not again: a job that has begun goes on when the
// leadership is lost, beside one of the next leader. A job that must stop takes a lock of its
// own: gocron.NewTask(adapt.Wrap(l, key, fn)).
//
// GocronElector panics if l is nil.
func GocronElector(l Leader, key advisory.Key, opts ...advisory.LockerOption) *Elector {
	mustHave(l, "GocronElector")
	ctx, cancel := context.WithCancel(context.Background())
	e := &Elector{l: l, key: key, opts: opts, cancel: cancel, ended: make(chan struct{})}
	go e.campaign(ctx)
	return e
}

// IsLeader returns nil while this Elector leads: by the clock of its Locker, without a round trip.
// Otherwise it fails with [advisory.ErrNotAcquired], and with the error that ended the last
// campaign, if one did. gocron skips the run after any error, and discards the error.
func (e *Elector) IsLeader(ctx context.Context) error {
	if ctx == nil {
		return lockfn.Error("lead", e.key, advisory.Exclusive, given.ErrNilCtx)
	}
	if err := ctx.Err(); err != nil {
		return lockfn.Error("lead", e.key, advisory.Exclusive, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	// A process that was stopped for long may run this before the timers that end the Contexts:
	// Holds looks at the clock.
	if e.term != nil && e.term.Err() == nil && e.lock.Err() == nil && e.l.Holds(e.key) {
		return nil
	}
	err := fmt.Errorf("%w: another node leads, or none does yet", advisory.ErrNotAcquired)
	if e.err != nil {
		err = fmt.Errorf("%w: %w", advisory.ErrNotAcquired, e.err)
	}
	return lockfn.Error("lead", e.key, advisory.Exclusive, err)
}

// Close ends the leadership and the campaign, and returns when the lock is released. It returns
// the error with which the campaign had ended before, if it had. Jobs that are running go on:
// call it after the scheduler's Shutdown, so that no other node leads while they do.
func (e *Elector) Close() error {
	e.cancel()
	<-e.ended
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// campaignPause is between a campaign that failed and the next. Lead itself makes a pause after
// errors that pass quickly.
const campaignPause = 5 * time.Second

func (e *Elector) campaign(ctx context.Context) {
	defer close(e.ended)
	for {
		err := e.l.Lead(ctx, e.key, e.lead, e.opts...)
		if ctx.Err() != nil {
			e.end(nil)
			return
		}
		e.end(err)
		if errors.Is(err, advisory.ErrClosed) || errors.Is(err, advisory.ErrInvalidKey) {
			return
		}
		timer := time.NewTimer(campaignPause/2 + rand.N(campaignPause/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			e.end(nil)
			return
		}
	}
}

// lead is what the leader does: it has the jobs run.
func (e *Elector) lead(ctx context.Context) error {
	e.begin(ctx)
	<-ctx.Done()
	return context.Cause(ctx)
}

// begin records that the term of this node has begun.
func (e *Elector) begin(term context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term, e.lock, e.err = term, term, nil
	if lock, ok := advisory.FromContext(term); ok {
		e.lock = lock.Context()
	}
}

// end records that this node does not lead, and why if that is an error.
func (e *Elector) end(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term, e.lock, e.err = nil, nil, err
}
