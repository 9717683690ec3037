package locker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/locker"
)

// A reader waits for a key that another process has. Then no session can take tries: no connection
// is to be had, or each leaves tries without an answer. A reader's try beside the wait fails, after
// as many attempts as any other.
func TestTryBesideAWaitEnds(t *testing.T) {
	tries := map[string]func(ctx context.Context, l *locker.Locker) (bool, error){
		"TryLock": func(ctx context.Context, l *locker.Locker) (bool, error) {
			_, ok, err := l.TryLock(ctx, job, advisory.Shared)
			return ok, err
		},
		"TryLockAny": func(ctx context.Context, l *locker.Locker) (bool, error) {
			_, ok, err := l.TryLockAny(ctx, []advisory.Key{job}, advisory.Shared)
			return ok, err
		},
	}
	faults := map[string]func(f *fakeServer){
		"no connection": func(f *fakeServer) {
			f.refused = errors.New("refused")
			f.conns[0].end()
		},
		"no answer": func(f *fakeServer) {
			f.silent = func(s *fakeStatement) bool { return len(s.ops) > 0 && s.ops[0] == lockfn.OpTry }
		},
	}
	for call, try := range tries {
		for fault, happen := range faults {
			t.Run(call+"/"+fault, func(t *testing.T) {
				timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
					l.Ping(context.Background())
					f.taken(job)
					waits, end := context.WithCancel(context.Background())
					waited := make(chan struct{})
					go func() {
						l.Lock(waits, job, advisory.Shared)
						close(waited)
					}()
					time.Sleep(time.Second)
					f.set(func() { happen(f) })
					time.Sleep(time.Second)
					var dialed int
					f.set(func() { dialed = -len(f.dialed) })
					ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
					defer cancel()
					start := time.Now()
					ok, err := try(ctx, l)
					if took := time.Since(start); ok || err == nil || errors.Is(err, advisory.ErrLost) || took > time.Minute {
						t.Errorf("%v, %v after %v", ok, err, took)
					}
					f.set(func() { dialed += len(f.dialed) })
					if dialed > 10 {
						t.Errorf("%d connections were opened", dialed)
					}
					end()
					<-waited
				})
			})
		}
	}
}
