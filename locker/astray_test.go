package locker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/locker"
)

// An answer of another session ends all sessions, also one that is being opened, at whatever statement
// that is: it never opens, and leaves neither a connection nor its part of a proof. Whoever waits tries once
// more, on a new session.
func TestAnAnswerOfAnotherSessionEndsOnesThatOpen(t *testing.T) {
	const latency = 10 * time.Millisecond
	for after := range 30 {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			var seen openings
			timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
				front := lock(t, l, advisory.Int64(2))
				f.set(func() { f.delay = latency })
				f.taken(job)
				waited := make(chan error, 1)
				go func() { waited <- free(l.Lock(t.Context(), job)) }()
				time.Sleep(time.Duration(after)*latency/2 + latency/4)
				f.set(func() { f.astray = true })
				_, _, err := l.TryLock(t.Context(), advisory.Int64(3))
				if !errors.Is(err, advisory.ErrUnsafeServer) {
					t.Errorf("TryLock: %v", err)
				}
				opened, lost := len(seen.all()), time.Now()
				if err := <-waited; !errors.Is(err, advisory.ErrUnsafeServer) {
					t.Errorf("Lock: %v", err)
				}
				if cause := context.Cause(front.Context()); !errors.Is(cause, advisory.ErrLost) {
					t.Errorf("the front's lock: %v", cause)
				}
				front.Unlock()
				time.Sleep(time.Second)
				synctest.Wait()
				for _, pid := range seen.all()[opened:] {
					if f.dialed[pid-1].Before(lost) {
						t.Errorf("the session of pid %d opened after the loss", pid)
					}
				}
				if n := l.Stats().Sessions; n != 0 {
					t.Errorf("%d sessions", n)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				if n := f.connections(); n != 0 {
					t.Errorf("%d connections after Close", n)
				}
			}, locker.WithStandby(), locker.WithFailover(standbyTimes.Failover), locker.WithMaxConns(2), advisory.WithObserver(&seen))
		})
	}
}

// openings are the pids of the sessions that were opened.
type openings struct {
	mu   sync.Mutex
	pids []int
}

func (o *openings) Observe(_ context.Context, e advisory.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.Kind == advisory.SessionOpened {
		o.pids = append(o.pids, e.PID)
	}
}

func (o *openings) all() []int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.pids)
}

// Each way to try a key notices that another session answers, and says so.
func TestEachTryNoticesAnotherSession(t *testing.T) {
	keys := []advisory.Key{job, advisory.Int64(3)}
	for name, try := range map[string]func(context.Context, *locker.Locker) error{
		"TryLock":    func(ctx context.Context, l *locker.Locker) error { _, _, err := l.TryLock(ctx, job); return err },
		"TryLockAny": func(ctx context.Context, l *locker.Locker) error { _, _, err := l.TryLockAny(ctx, keys); return err },
		"TryLockAll": func(ctx context.Context, l *locker.Locker) error { _, _, err := l.TryLockAll(ctx, keys); return err },
		"Semaphore": func(ctx context.Context, l *locker.Locker) error {
			_, _, err := l.Semaphore(semaphore, 2).TryAcquire(ctx)
			return err
		},
		"LockAny": func(ctx context.Context, l *locker.Locker) error { return free(l.LockAny(ctx, keys)) },
		"Lock":    func(ctx context.Context, l *locker.Locker) error { return free(l.Lock(ctx, job)) },
	} {
		t.Run(name, func(t *testing.T) {
			timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
				front := lock(t, l, advisory.Int64(2))
				f.set(func() { f.astray = true })
				err := try(t.Context(), l)
				if unsafe, ok := errors.AsType[*advisory.UnsafeServerError](err); !ok || unsafe.Reason != advisory.Pooler {
					t.Error(err)
				}
				if front.Context().Err() == nil {
					t.Error("the lock on that session goes on")
				}
				front.Unlock()
			})
		})
	}
}
