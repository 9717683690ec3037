package locker_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/locker"
)

// reads makes a shared try that is to succeed, and returns its lock.
func reads(t *testing.T, l *locker.Locker) advisory.Lock {
	t.Helper()
	lock, ok, err := l.TryLock(context.Background(), job, advisory.Shared)
	if !ok || err != nil {
		t.Errorf("a reader's try: %v, %v", ok, err)
	}
	return lock
}

// Readers try while a statement about the key is under way: another's try, a release, a token.
func TestReaderTriesBesideAStatement(t *testing.T) {
	for _, opts := range [][]locker.Option{nil, {locker.WithFencing()}} {
		timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
			l.Ping(context.Background())
			f.set(func() { f.delay = 10 * time.Millisecond })
			var wg sync.WaitGroup
			var mu sync.Mutex
			var locks advisory.Locks
			try := func(n int) {
				for range n {
					wg.Go(func() {
						lock := reads(t, l)
						mu.Lock()
						defer mu.Unlock()
						locks = append(locks, lock)
					})
				}
			}
			try(100)
			time.Sleep(5 * time.Millisecond)
			try(100) // beside the try
			time.Sleep(10 * time.Millisecond)
			try(100) // beside a token, where there are any
			wg.Wait()
			released := make(chan error)
			first := locks
			locks = nil
			go func() { released <- first.Unlock() }()
			time.Sleep(5 * time.Millisecond)
			try(100) // beside the release
			wg.Wait()
			if err := <-released; err != nil {
				t.Error(err)
			}
			if err := locks.Unlock(); err != nil {
				t.Error(err)
			}
			// Many share a statement; a token is each reader's own.
			sent := f.statements(func(s *fakeStatement) bool { return !isPing(s) && s.text != "SELECT "+lockfn.Token })
			if len(sent) > 20 {
				t.Errorf("%d statements for 400 readers", len(sent))
			}
			if n := f.reading(job); n != 0 {
				t.Errorf("%d shared holds are left", n)
			}
			time.Sleep(time.Minute)
		}, opts...)
	}
}

// A reader waits on the server. The writer has gone, and the grant is on its way. Another reader's
// try succeeds, and what is granted twice is given back once.
func TestReaderTriesWhileAGrantIsOnItsWay(t *testing.T) {
	for _, transit := range []time.Duration{time.Second, 5 * time.Millisecond} {
		for _, any := range []bool{false, true} {
			timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
				l.Ping(context.Background())
				f.taken(job)
				first := make(chan advisory.Lock)
				go func() {
					lock, err := l.Lock(context.Background(), job, advisory.Shared)
					if err != nil {
						t.Error(err)
					}
					first <- lock
				}()
				time.Sleep(1100 * time.Millisecond) // between two pings
				f.set(func() {
					f.transit = transit
					f.free(job.String())
				})
				synctest.Wait()
				f.set(func() { f.transit = 0 })
				var second advisory.Lock
				takes(t, "a try", 0, func() {
					if !any {
						second = reads(t, l)
						return
					}
					var ok bool
					var err error
					if second, ok, err = l.TryLockAny(context.Background(), []advisory.Key{job}, advisory.Shared); !ok || err != nil {
						t.Errorf("any: %v, %v", ok, err)
					}
				})
				(<-first).Unlock()
				time.Sleep(2 * time.Second)
				if n := f.reading(job); n != 1 {
					t.Errorf("%d shared holds on the server, for one reader", n)
				}
				second.Unlock()
				time.Sleep(time.Minute)
				if n := f.reading(job); n != 0 {
					t.Errorf("%d shared holds are left", n)
				}
				released(t, f, l, job)
			})
		}
	}
}

// A writer of another process waited for a shared lock, as of the last ping, and has gone since.
func TestReaderTriesAfterAWriterHasGone(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		first := reads(t, l)
		n, _ := job.Int64()
		f.set(func() { f.wanted = []int64{n} })
		time.Sleep(time.Second)
		for name, try := range map[string]func() (bool, error){
			"TryLock": func() (bool, error) {
				lock, ok, err := l.TryLock(context.Background(), job, advisory.Shared)
				lock.Unlock()
				return ok, err
			},
			"TryLockAny": func() (bool, error) {
				lock, ok, err := l.TryLockAny(context.Background(), []advisory.Key{job}, advisory.Shared)
				lock.Unlock()
				return ok, err
			},
		} {
			f.set(func() { f.wanted = []int64{n} })
			time.Sleep(time.Second)
			if ok, err := try(); ok || err != nil {
				t.Errorf("%s behind a writer: %v, %v", name, ok, err)
			}
			f.set(func() { f.wanted = nil })
			takes(t, name, 0, func() {
				if ok, err := try(); !ok || err != nil {
					t.Errorf("%s after the writer has gone: %v, %v", name, ok, err)
				}
			})
		}
		first.Unlock()
		time.Sleep(time.Minute)
		released(t, f, l, job)
	})
}

// A writer that waits in this process is before the readers that try after it.
func TestReaderTriesBehindAWriterOfTheProcess(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		first := reads(t, l)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { _, err := l.Lock(ctx, job); ended <- err }()
		synctest.Wait()
		if _, ok, err := l.TryLock(context.Background(), job, advisory.Shared); ok || err != nil {
			t.Errorf("behind a writer: %v, %v", ok, err)
		}
		cancel()
		<-ended
		reads(t, l).Unlock()
		first.Unlock()
		time.Sleep(time.Minute)
		released(t, f, l, job)
	})
}

// Readers who join at once are all granted, and each draws a token of its own after its call began.
func TestReadersWhoJoinAtOnceHaveTokensOfTheirOwn(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		first := reads(t, l)
		locks := advisory.Locks{first}
		seen := map[uint64]bool{first.Token(): true}
		f.set(func() { f.delay = 10 * time.Millisecond })
		before := first.Token()
		for range 3 {
			var wg sync.WaitGroup
			var mu sync.Mutex
			highest := before
			for range 50 {
				wg.Go(func() {
					lock := reads(t, l)
					mu.Lock()
					defer mu.Unlock()
					if token := lock.Token(); token <= before || seen[token] {
						t.Errorf("token %d after %d, seen: %v", token, before, seen[token])
					}
					seen[lock.Token()] = true
					highest = max(highest, lock.Token())
					locks = append(locks, lock)
				})
			}
			wg.Wait()
			before = highest
		}
		locks.Unlock()
		time.Sleep(time.Minute)
		released(t, f, l, job)
	}, locker.WithFencing())
}

// Tries of any of some keys that another process has share the answer to one statement.
func TestTriesOfTakenKeysShareAnAnswer(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		l.Ping(context.Background())
		var keys []advisory.Key
		for i := range 10 {
			keys = append(keys, advisory.Int64(int64(i)))
			f.taken(keys[i])
		}
		synctest.Wait() // the session sends a ping of its own after the answer
		f.set(func() { f.delay = 10 * time.Millisecond })
		before := len(f.statements(isAnswered))
		takes(t, "500 tries", 20*time.Millisecond, func() {
			var wg sync.WaitGroup
			for range 500 {
				wg.Go(func() {
					if _, ok, err := l.TryLockAny(context.Background(), keys); ok || err != nil {
						t.Error(ok, err)
					}
				})
			}
			wg.Wait()
		})
		if n := len(f.statements(isAnswered)) - before; n > 3 {
			t.Errorf("%d statements", n)
		}
		released(t, f, l)
	})
}

func TestTryLockAnyWhoseQuestionFails(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		lock(t, l, job, advisory.Shared)
		f.set(func() { f.wanted = []int64{4820} })
		time.Sleep(time.Second)
		f.set(func() {
			f.wanted = nil
			f.fails = func(text string) error {
				if text == lockfn.Wanted {
					return serverError("53200")
				}
				return nil
			}
		})
		if _, ok, err := l.TryLock(context.Background(), job, advisory.Shared); ok || err == nil {
			t.Errorf("TryLock: %v, %v", ok, err)
		}
		if _, ok, err := l.TryLockAny(context.Background(), []advisory.Key{job}, advisory.Shared); ok || err == nil {
			t.Errorf("TryLockAny: %v, %v", ok, err)
		}
	})
}
