package conn_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// An attempt is one call.
type attempt struct {
	ctx     context.Context
	keys    []advisory.Key // no other attempt's
	mode    advisory.Mode
	maxWait time.Duration

	waited bool
	missed bool      // it was too late to release the key when it should have been
	got    time.Time // of the grant
	late   bool      // ctx had ended by then
	fail   error     // of the check at the grant
	undone int
}

var lastKey atomic.Int64

func (w *worker) attempt() *attempt {
	a := &attempt{ctx: context.Background(), keys: make([]advisory.Key, max(w.form.keys, 1))}
	n := lastKey.Add(int64(len(a.keys)))
	if n%3 == 0 && !w.form.naive {
		a.mode = advisory.Shared
	}
	for i := range a.keys {
		if n%2 == 0 && !w.form.naive {
			a.keys[i] = advisory.Pair(-4820, int32(n)-int32(i))
		} else {
			a.keys[i] = advisory.Int64(n - int64(i))
		}
	}
	return a
}

// key is the one that another session holds, if any does: of several not the first.
func (a *attempt) key() advisory.Key { return a.keys[len(a.keys)/2] }

// granted is to be called as soon as the lock was taken, with what holds it.
func (a *attempt) granted(on querier) {
	a.got, a.late = time.Now(), a.ctx.Err() != nil
	held, err := heldBy(on)
	if want := listed(a.keys, a.mode); err != nil || held != want {
		a.fail = fmt.Errorf("granted %s, holds %s (%v)", want, held, err)
	}
}

// judge returns an error unless err is one that a call may return whose time ended
// around the moment of the grant.
func (a *attempt) judge(err error) error {
	end := a.ctx.Err()
	if a.maxWait > 0 {
		end = advisory.ErrNotAcquired
	}
	switch {
	case a.fail != nil:
		return a.fail
	case err == nil && a.got.IsZero():
		return fmt.Errorf("%v: neither a grant nor an error", a.keys)
	case err == nil:
		return nil
	case end == nil:
		return fmt.Errorf("before the end of ctx: %w", err)
	case !errors.Is(err, end):
		return fmt.Errorf("the error does not say %q: %w", end, err)
	case a.waited && a.got.IsZero() && !errors.Is(err, advisory.ErrNotAcquired):
		return fmt.Errorf("the error of a wait does not say %q: %w", advisory.ErrNotAcquired, err)
	}
	return nil
}
