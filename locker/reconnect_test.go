package locker_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/locker"
)

func TestWaitBehindAPoolerThatWasAddedFails(t *testing.T) {
	calls := map[string]func(ctx context.Context, l *locker.Locker) error{
		"TryLock": func(ctx context.Context, l *locker.Locker) error {
			_, _, err := l.TryLock(ctx, job)
			return err
		},
		"Lock": func(ctx context.Context, l *locker.Locker) error {
			_, err := l.Lock(ctx, job)
			return err
		},
		"LockAll": func(ctx context.Context, l *locker.Locker) error {
			_, err := l.LockAll(ctx, []advisory.Key{job, advisory.Int64(2)})
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
				f.set(func() { f.delay, f.astray = time.Millisecond, true })
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				start := time.Now()
				err := call(ctx, l)
				if took := time.Since(start); !errors.Is(err, advisory.ErrUnsafeServer) || len(f.campaigns()) > 10 {
					t.Errorf("after %v and %d connections: %v", took, len(f.campaigns()), err)
				}
			})
		})
	}
}

func TestWaitWhoseSessionsEndAtOnce(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		f.set(func() {
			f.delay = time.Millisecond
			f.fails = func(text string) error {
				if singleOf.MatchString(text) {
					return driver.ErrBadConn
				}
				return nil
			}
		})
		l.Lock(context.Background(), job, advisory.MaxWait(time.Minute))
		if n := len(f.campaigns()); n > 200 {
			t.Errorf("%d connections in a minute", n)
		}
	})
}

func TestCallsThatFailLeaveNoTimers(t *testing.T) {
	const calls = 3000
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		f.taken(job)
		lock(t, l, advisory.Int64(1))
		ctx, cancel := context.WithCancel(context.Background())
		left := make(chan struct{})
		go func() { l.Lock(ctx, job); close(left) }()
		time.Sleep(time.Second)
		f.set(func() { f.refused = errors.New("too many clients already") })
		f.holder(advisory.Int64(1)).Close()
		time.Sleep(time.Second)
		for range calls {
			if _, _, err := l.TryLock(context.Background(), advisory.Int64(2)); err == nil {
				t.Fatal("no error")
			}
			time.Sleep(10 * time.Millisecond)
		}
		// Each timer of a guard locks the mutex once, when it fires.
		regions := locker.CountRegions(l)
		time.Sleep(1100 * time.Millisecond)
		if n := regions(); n > 100 {
			t.Errorf("the mutex was locked %d times within 1.1 s, with one caller that waits", n)
		}
		cancel()
		<-left
	})
}
