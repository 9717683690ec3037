package locker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/locker"
)

type observed func(advisory.Event)

func (f observed) Observe(_ context.Context, e advisory.Event) { f(e) }

// LockAll has got two of three keys, and its session is lost before it gives back the one
// that comes behind the third. It says so, and holds nothing; a try says so, too.
func TestLossWhileKeysAreGivenBack(t *testing.T) {
	keys := []advisory.Key{advisory.Int64(1), advisory.Int64(2), advisory.Int64(3)}
	for _, try := range []bool{false, true} {
		timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
			f.set(func() { f.locks["2"] = &fakeConn{f: f} })
			got := 0
			observer := observed(func(e advisory.Event) {
				if e.Kind == advisory.Acquired {
					if got++; got == 2 {
						f.holder(keys[2]).Close()
						time.Sleep(time.Second) // the next ping finds out
					}
				}
			})
			opts := []advisory.LockerOption{locker.HoldAtLeast(time.Minute), advisory.WithObserver(observer), advisory.MaxWait(10 * time.Second)}
			if try {
				locks, ok, err := l.TryLockAll(context.Background(), keys, opts[:2]...)
				if ok || len(locks) != 0 || err != nil {
					t.Errorf("%v, %v, %v", locks, ok, err)
				}
			} else if locks, err := l.LockAll(context.Background(), keys, opts...); !errors.Is(err, advisory.ErrNotAcquired) || len(locks) != 0 {
				t.Errorf("%v, %v", locks, err)
			}
			if got != 2 {
				t.Errorf("%d were acquired", got)
			}
			if st := l.Stats(); st.Held != 0 || st.Users != 0 || st.Waiting != 0 {
				t.Errorf("%+v", st)
			}
			f.set(func() { f.free("2") })
			locks, ok, err := l.TryLockAll(context.Background(), keys)
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			if err := locks.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDowngradeOfALostLockReturnsAtOnce(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		held := lock(t, l, job)
		left := make(chan struct{})
		go func() { l.Lock(context.Background(), job, advisory.MaxWait(time.Minute)); close(left) }()
		time.Sleep(time.Millisecond)
		f.fallMute()
		f.holder(job).Close()
		<-held.Context().Done()
		time.Sleep(time.Millisecond)
		takes(t, "Downgrade", 0, func() {
			if err := held.Downgrade(context.Background()); err == nil {
				t.Error("no error")
			}
		})
		f.speakAgain()
		<-left
	})
}
