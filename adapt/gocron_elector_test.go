package adapt_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/adapt"
	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory/locktest"
)

var leadership = advisory.Name("billing", "scheduler")

func TestElectorLeadsOnlyWhileItHoldsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := leader{locktest.New()}
		release := l.Occupy(leadership)
		e := adapt.GocronElector(l, leadership)
		synctest.Wait()
		if err := e.IsLeader(t.Context()); !errors.Is(err, advisory.ErrNotAcquired) {
			t.Errorf("while another node leads: %v", err)
		}
		release()
		synctest.Wait()
		if err := e.IsLeader(t.Context()); err != nil {
			t.Errorf("as the leader: %v", err)
		}
		l.Lose(leadership)
		if err := e.IsLeader(t.Context()); !errors.Is(err, advisory.ErrNotAcquired) {
			t.Errorf("after a loss, before the next campaign: %v", err)
		}
		synctest.Wait()
		if err := e.IsLeader(t.Context()); err != nil {
			t.Errorf("as the leader again: %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := e.IsLeader(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("with a ctx that has ended: %v", err)
		}
		var none context.Context
		if err := e.IsLeader(none); err == nil || errors.Is(err, advisory.ErrNotAcquired) {
			t.Errorf("with a ctx that is nil: %v", err)
		}
		for range 2 {
			if err := e.Close(); err != nil || l.Holds(leadership) {
				t.Errorf("Close: %v; it holds the lock: %v", err, l.Holds(leadership))
			}
			if err := e.IsLeader(t.Context()); !errors.Is(err, advisory.ErrNotAcquired) {
				t.Errorf("after Close: %v", err)
			}
		}
	})
}

// A unready fails to lead as often as it says, and then leads.
type unready struct {
	leader
	failures *int
}

func (u unready) Lead(ctx context.Context, key advisory.Key, fn func(ctx context.Context) error, opts ...advisory.LockerOption) error {
	if *u.failures > 0 {
		*u.failures--
		return &advisory.UnsafeServerError{}
	}
	return u.leader.Lead(ctx, key, fn, opts...)
}

func TestElectorCampaignsAgainAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := 2
		l := unready{leader{locktest.New()}, &failures}
		e := adapt.GocronElector(l, leadership)
		synctest.Wait()
		if err := e.IsLeader(t.Context()); !errors.Is(err, advisory.ErrUnsafeServer) || !errors.Is(err, advisory.ErrNotAcquired) {
			t.Errorf("on a server in recovery: %v", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := e.IsLeader(t.Context()); err != nil || failures != 0 {
			t.Errorf("after the promotion: %v", err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestElectorIsClosedDuringAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := 1
		e := adapt.GocronElector(unready{failures: &failures}, leadership)
		synctest.Wait()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestElectorWhoseCampaignIsFinal(t *testing.T) {
	closed := leader{locktest.New()}
	closed.Close()
	for name, v := range map[string]struct {
		l    leader
		key  advisory.Key
		want error
	}{
		"the zero Key":    {leader{locktest.New()}, advisory.Name("billing", ""), advisory.ErrInvalidKey},
		"a closed Locker": {closed, leadership, advisory.ErrClosed},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := adapt.GocronElector(v.l, v.key)
			synctest.Wait()
			if err := e.IsLeader(t.Context()); !errors.Is(err, v.want) {
				t.Errorf("%s: IsLeader: %v", name, err)
			}
			if err := e.Close(); !errors.Is(err, v.want) {
				t.Errorf("%s: Close: %v", name, err)
			}
		})
	}
}
