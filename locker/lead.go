package locker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/work"
)

// Lead campaigns for key and, once it has it, runs fn as the only leader. It returns
// what fn returns. If the lock is lost, fn's ctx ends with cause [advisory.ErrLost]; Lead
// waits for fn to return and campaigns again. A campaign waits as [Locker.Lock] does, also while the
// server cannot be reached, and what ends that for good ends Lead. After other errors Lead campaigns
// again, after a pause that grows to ten seconds. It ends with ctx.
//
// Between a loss of which the server learns first and the end of fn's ctx there may be a
// heartbeat in which another leads already; only a fencing token covers that.
func (l *Locker) Lead(ctx context.Context, key advisory.Key, fn func(ctx context.Context) error, opts ...advisory.LockerOption) error {
	if fn == nil {
		return lockfn.Error("lead", key, advisory.Exclusive, work.ErrNilFn)
	}
	if _, err := l.checkCall(ctx, opts, key); err != nil {
		return lockfn.Error("lead", key, advisory.Exclusive, err)
	}
	var last error // that a campaign failed with
	for b := (backoff{}); ; b.pause(ctx) {
		h, err := l.acquire(ctx, time.Now(), "lead", key, opts, false)
		if h.hold != nil {
			b, last = backoff{}, nil
			err = h.do(ctx, fn)
			if !errors.Is(context.Cause(h.ctx), advisory.ErrLost) {
				return err
			}
		}
		if ctx.Err() != nil {
			err = lockfn.Error("lead", key, advisory.Exclusive, bound.Ended(ctx, err))
			if last != nil {
				err = fmt.Errorf("%w; the campaign before that: %w", err, last)
			}
			return err
		}
		if h.hold == nil && final(err) {
			return err
		}
		last = err
	}
}

// final reports whether there is no point in another campaign.
func final(err error) bool {
	if e, ok := errors.AsType[*advisory.UnsafeServerError](err); ok && (e.Reason == advisory.NoStandby || e.Reason == advisory.StalePrimary) {
		return false // names are set again when a standby is back, and the old primary goes
	}
	for _, e := range []error{advisory.ErrClosed, advisory.ErrNotAcquired, advisory.ErrAlreadyHeld, advisory.ErrInvalidKey, advisory.ErrUnsafeServer, errPoolOfOne, errPoolOfTwo, lockfn.ErrNoToken} {
		if errors.Is(err, e) {
			return true
		}
	}
	return lasting(err)
}

// A backoff is a pause that grows, is capped, and differs from one process to another.
type backoff struct{ last time.Duration }

const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 10 * time.Second
)

func (b *backoff) pause(ctx context.Context) {
	b.last = min(max(2*b.last, firstBackoff), lastBackoff)
	timer := time.NewTimer(b.last/2 + rand.N(b.last/2))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
