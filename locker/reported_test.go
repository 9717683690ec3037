package locker_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/locker"
)

func TestEachCallWithoutTheLockIsReported(t *testing.T) {
	keys := []advisory.Key{advisory.Int64(1), advisory.Int64(2), advisory.Int64(3)}
	calls := map[string]func(context.Context, *locker.Locker, ...advisory.LockerOption) error{
		"Lock": func(ctx context.Context, l *locker.Locker, o ...advisory.LockerOption) error {
			_, err := l.Lock(ctx, keys[0], o...)
			return err
		},
		"TryLock": func(ctx context.Context, l *locker.Locker, o ...advisory.LockerOption) error {
			_, _, err := l.TryLock(ctx, keys[0], o...)
			return err
		},
		"LockAll": func(ctx context.Context, l *locker.Locker, o ...advisory.LockerOption) error {
			_, err := l.LockAll(ctx, keys, o...)
			return err
		},
		"TryLockAll": func(ctx context.Context, l *locker.Locker, o ...advisory.LockerOption) error {
			_, _, err := l.TryLockAll(ctx, keys, o...)
			return err
		},
		"LockAny": func(ctx context.Context, l *locker.Locker, o ...advisory.LockerOption) error {
			_, err := l.LockAny(ctx, keys, o...)
			return err
		},
		"TryLockAny": func(ctx context.Context, l *locker.Locker, o ...advisory.LockerOption) error {
			_, _, err := l.TryLockAny(ctx, keys, o...)
			return err
		},
	}
	for name, call := range calls {
		for _, what := range []string{"closed", "ended", "mute"} {
			t.Run(name+"/"+what, func(t *testing.T) {
				timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
					l.Ping(context.Background())
					ctx, cancel := context.WithCancel(context.Background())
					switch what {
					case "closed":
						l.Close()
					case "ended":
						cancel()
					case "mute":
						f.fallMute()
						time.AfterFunc(100*time.Millisecond, cancel)
					}
					var mu sync.Mutex
					n := 0
					err := call(ctx, l, advisory.WithObserver(observed(func(e advisory.Event) {
						mu.Lock()
						defer mu.Unlock()
						if e.Kind == advisory.NotAcquired {
							n++
						}
					})))
					if err == nil {
						t.Error("no error")
					}
					mu.Lock()
					defer mu.Unlock()
					if each := what == "mute" && strings.HasSuffix(name, "LockAll"); n != 1 && !(each && n == len(keys)) {
						t.Errorf("%d events", n) // one, or one for each key that was asked for
					}
					cancel()
					if what == "mute" {
						f.speakAgain()
					}
				})
			})
		}
	}
}

func TestLongLockAllIsReportedOnce(t *testing.T) {
	const n = 20
	keys := make([]advisory.Key, n)
	for i := range keys {
		keys[i] = advisory.Int64(int64(i + 1))
	}
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		for _, k := range keys {
			f.taken(k)
		}
		waiting := 0
		go func() {
			time.Sleep(6 * time.Second)
			for _, k := range keys {
				f.set(func() { f.free(k.String()) })
				time.Sleep(100 * time.Millisecond)
			}
		}()
		locks, err := l.LockAll(context.Background(), keys, advisory.WithObserver(observed(func(e advisory.Event) {
			if e.Kind == advisory.Waiting {
				waiting++
			}
		})))
		if err != nil {
			t.Fatal(err)
		}
		if waiting != 1 {
			t.Errorf("%d Waiting events", waiting)
		}
		locks.Unlock()
	})
}
