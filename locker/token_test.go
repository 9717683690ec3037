package locker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/locker"
)

// everyCall returns the errors of calls that need a session, each made at once.
func everyCall(l *locker.Locker) map[string]error {
	ctx := context.Background()
	_, _, try := l.TryLock(ctx, job)
	_, wait := l.Lock(ctx, job)
	return map[string]error{
		"Ping": l.Ping(ctx), "TryLock": try, "Lock": wait,
		"Lead": l.Lead(ctx, job, func(context.Context) error { return nil }),
	}
}

// Before PostgreSQL 13 there are no tokens, and the error says so. Without fencing all works.
func TestTokensNeedPostgreSQL13(t *testing.T) {
	old := func(f *fakeServer) { f.set(func() { f.number = 120022 }) }
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		old(f)
		for call, err := range everyCall(l) {
			if err == nil || !strings.Contains(err.Error(), "there is no fencing token: WithFencing needs PostgreSQL 13 or later, and version() is PostgreSQL") {
				t.Errorf("%s: %v", call, err)
			}
		}
		for _, s := range f.sent {
			if strings.Contains(s.text, "pg_current_xact_id") {
				t.Errorf("sent: %s", s.text)
			}
		}
	}, locker.WithFencing())
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		old(f)
		if err := lock(t, l, job).Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// A token is the sum of timeline and epoch, above the transaction id.
func TestTheEpochIsAddedToTheTimeline(t *testing.T) {
	for _, c := range []struct {
		timeline string
		epoch    int
		high     uint64
	}{
		{"00000001", 0, 1}, {"00000001", 7, 8}, {"0000001A", 3, 29}, {"00000001", 65534, 65535}, {"0000FFFF", 0, 65535}, {"00008000", 0, 1 << 15},
	} {
		t.Run(fmt.Sprint(c.timeline, " ", c.epoch), func(t *testing.T) {
			timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
				f.set(func() { f.timeline, f.tokens = c.timeline, 4711 })
				first := lock(t, l, job, advisory.Shared)  // its token comes with the batch
				second := lock(t, l, job, advisory.Shared) // draws one
				if first.Token() != c.high<<48+4712 || second.Token() <= first.Token() || second.Token() != c.high<<48+uint64(f.tokens) {
					t.Errorf("tokens %#x and %#x", first.Token(), second.Token())
				}
				for _, held := range []advisory.Lock{first, second} {
					if err := held.Unlock(); err != nil {
						t.Error(err)
					}
				}
			}, locker.WithFencing(), locker.WithTokenEpoch(c.epoch))
		})
	}
}

// Where no greater token fits, no session is opened: a token never begins again from below.
func TestNoTokenPast65535Timelines(t *testing.T) {
	for _, c := range []struct {
		timeline string
		epoch    int
	}{{"00010000", 0}, {"0000FFFF", 1}, {"00000002", 65534}, {"FFFFFFFF", 65534}} {
		t.Run(fmt.Sprint(c.timeline, " ", c.epoch), func(t *testing.T) {
			timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
				f.set(func() { f.timeline = c.timeline })
				for call, err := range everyCall(l) {
					if !errors.Is(err, lockfn.ErrNoToken) {
						t.Errorf("%s: %v", call, err)
					}
				}
			}, locker.WithFencing(), locker.WithTokenEpoch(c.epoch))
			timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
				f.set(func() { f.timeline = c.timeline })
				if err := lock(t, l, job).Unlock(); err != nil {
					t.Errorf("without tokens: %v", err)
				}
			}, locker.WithTokenEpoch(c.epoch))
		})
	}
}

// An epoch that no token has room for is an error of every call.
func TestWithTokenEpochOutOfRange(t *testing.T) {
	for _, n := range []int{-1, 65535, 1 << 40} {
		l := locker.New(newFakeServer(t).open(), locker.WithTokenEpoch(n))
		if err := l.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("WithTokenEpoch(%d): it must be from 0 to 65534", n)) {
			t.Errorf("%d: %v", n, err)
		}
	}
}
