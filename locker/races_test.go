package locker_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/locker"
)

// These tests bring about what a real server and a busy machine do once in a long time.

// released looks whether a Locker and its server have nothing any more.
func released(t *testing.T, f *fakeServer, l *locker.Locker, keys ...advisory.Key) {
	t.Helper()
	synctest.Wait()
	if st := l.Stats(); st.Users != 0 || st.Held != 0 || st.Waiting != 0 {
		t.Errorf("after all was unlocked: %+v", st)
	}
	for _, k := range keys {
		if f.holder(k) != nil {
			t.Errorf("%s is held on the server", k)
		}
	}
}

// taken has another process hold a key.
func (f *fakeServer) taken(key advisory.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.locks[key.String()] = &fakeConn{f: f}
}

func (f *fakeServer) speakAgain() { f.set(f.speak) }

// LockAny waits for two keys that the process holds. Both are handed over at the same time, by
// way of a sign of life or for a token: it gets one, and the other is released.
func TestLockAnyGetsOneOfTwoThatAreHandedOver(t *testing.T) {
	for _, opts := range [][]locker.Option{{locker.WithHeartbeat(10 * time.Millisecond)}, {locker.WithFencing()}} {
		timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
			keys := []advisory.Key{advisory.Int64(1), advisory.Int64(2)}
			if err := l.Ping(context.Background()); err != nil {
				t.Fatal(err)
			}
			f.set(func() { f.delay = 15 * time.Millisecond })
			locks, ok, err := l.TryLockAll(context.Background(), keys)
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			got := make(chan advisory.Lock, 1)
			go func() {
				lock, err := l.LockAny(context.Background(), keys)
				if err != nil {
					t.Error(err)
				}
				got <- lock
			}()
			synctest.Wait()
			locks.Unlock()
			if err := (<-got).Unlock(); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			released(t, f, l, keys...)
		}, opts...)
	}
}

// A key is polled, for the pool is small. Its waiter leaves, a TryLock comes, and there is room
// for a session that waits: for a TryLock it does not.
func TestTryLockDoesNotTakeOverAWait(t *testing.T) {
	pooled(t, func(t *testing.T, f *fakeServer, db *sql.DB, l *locker.Locker) {
		db.SetMaxOpenConns(2)
		f.taken(job)
		l.Lock(context.Background(), job, advisory.MaxWait(110*time.Millisecond))
		if n := len(f.statements(isSlice)); n != 0 {
			t.Fatalf("%d slices", n)
		}
		db.SetMaxOpenConns(10)
		takes(t, "TryLock", 0, func() {
			if _, ok, err := l.TryLock(context.Background(), job); ok || err != nil {
				t.Error(ok, err)
			}
		})
		released(t, f, l)
	})
}

// The first session is lost while a key is polled, and no session waits. The next poll finds room
// for a session: for one that guards those that wait, before one that waits.
func TestNoSessionWaitsUnguarded(t *testing.T) {
	pooled(t, func(t *testing.T, f *fakeServer, db *sql.DB, l *locker.Locker) {
		db.SetMaxOpenConns(2)
		f.taken(job)
		lock(t, l, advisory.Int64(1))
		ctx, cancel := context.WithCancel(context.Background())
		got := make(chan struct{})
		go func() { l.Lock(ctx, job); close(got) }()
		time.Sleep(126 * time.Millisecond) // just after a poll, so that the next ping finds out
		synctest.Wait()
		first := f.holder(advisory.Int64(1))
		first.Close()
		time.Sleep(time.Minute)
		synctest.Wait()
		later := f.statements(func(s *fakeStatement) bool { return s.pid != first.pid })
		if later = slices.DeleteFunc(later, func(s *fakeStatement) bool { return !isPing(s) }); len(later) < 10000 {
			t.Errorf("%d pings after the loss", len(later))
		}
		if n := len(f.statements(isSlice)); n != 0 {
			t.Errorf("%d slices, and a pool that has room for no other session", n)
		}
		if n := l.Stats().Sessions; n != 1 {
			t.Errorf("%d sessions", n)
		}
		cancel()
		<-got
	}, locker.WithHeartbeat(2*time.Millisecond))
}

// The exclusive try of a caller that has left does not answer a shared one that came later.
func TestATryIsNotAnsweredByAnother(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		l.Ping(context.Background())
		f.taken(job)
		f.set(func() { f.delay = 30 * time.Millisecond })
		go l.Lock(context.Background(), job, advisory.MaxWait(10*time.Millisecond))
		time.Sleep(20 * time.Millisecond)
		l.TryLock(context.Background(), job, advisory.Shared)
		if n := len(f.statements(does(lockfn.OpTry))); n != 2 {
			t.Errorf("%d tries were sent", n)
		}
		time.Sleep(time.Second)
	})
}

// The answer of a slice comes after the server may have let go: no work begins.
func TestAGrantThatIsToldTooLateIsNone(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		f.set(func() { f.lateness = 14 * time.Second }) // tcp_user_timeout is 13 s
		f.taken(job)
		go func() {
			time.Sleep(time.Millisecond)
			f.set(func() { f.free(job.String()) })
			time.Sleep(13 * time.Second)
			f.taken(job)
		}()
		err := l.Do(context.Background(), job, func(context.Context) error {
			t.Error("work begins")
			return nil
		}, advisory.MaxWait(20*time.Second))
		if !errors.Is(err, advisory.ErrNotAcquired) {
			t.Error(err)
		}
	})
}

// Close on a link that has just died, while no statement is under way, leaves no connection open.
func TestCloseOnALinkThatHasJustDied(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		f.set(func() { f.mindless = true })
		lock(t, l, job)
		time.Sleep(10 * time.Millisecond)
		f.fallMute()
		start := time.Now()
		l.Close()
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("Close took %v", took)
		}
		time.Sleep(time.Second)
		if synctest.Wait(); f.holder(job) != nil {
			t.Error("the connection is open")
		}
		f.speakAgain()
	})
}

// A leader waits for another lock when its own is lost, and says so: Lead campaigns again.
func TestLeadAfterALossInANestedWait(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		f.taken(advisory.Int64(2))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		terms := 0
		err := l.Lead(ctx, job, func(ctx context.Context) error {
			if terms++; terms > 1 {
				return nil
			}
			go func() { time.Sleep(time.Second); f.holder(job).Close() }()
			return l.Do(ctx, advisory.Int64(2), func(context.Context) error { return nil })
		})
		if terms != 2 || err != nil {
			t.Errorf("%d terms, %v", terms, err)
		}
	})
}

// A leader whose work has ended well leads no other time because of an error of that work.
func TestLeadEndsWithItsWork(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		terms := 0
		err := l.Lead(context.Background(), job, func(context.Context) error {
			terms++
			return advisory.ErrLost // another Locker's
		})
		if terms != 1 || !errors.Is(err, advisory.ErrLost) {
			t.Errorf("%d terms, %v", terms, err)
		}
	})
}

// Lead tells why its campaigns failed, and does not go on without a pool.
func TestLeadTellsWhyItDoesNotLead(t *testing.T) {
	never := func(context.Context) error { return nil }
	pooled(t, func(t *testing.T, f *fakeServer, db *sql.DB, l *locker.Locker) {
		refusal := errors.New("no pg_hba.conf entry")
		f.set(func() { f.refused = refusal })
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := l.Lead(ctx, job, never); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), refusal.Error()) {
			t.Error(err)
		}
		db.Close()
		takes(t, "Lead on a closed pool", 0, func() {
			if err := l.Lead(context.Background(), job, never); err == nil || !strings.Contains(err.Error(), "database is closed") {
				t.Error(err)
			}
		})
	})
}

// A job that ends during Shutdown holds its lock for as long as HoldAtLeast says; if Shutdown's ctx
// cuts that short, its work is done all the same.
func TestHoldAtLeastDuringShutdown(t *testing.T) {
	for _, c := range []struct{ patience, held time.Duration }{{time.Hour, 800 * time.Millisecond}, {100 * time.Millisecond, 100 * time.Millisecond}} {
		timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
			ended := make(chan error)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), c.patience)
				defer cancel()
				time.Sleep(time.Millisecond)
				ended <- l.Shutdown(ctx)
			}()
			takes(t, "Do", c.held, func() {
				err := l.Do(context.Background(), job, func(context.Context) error {
					time.Sleep(5 * time.Millisecond)
					return nil
				}, locker.HoldAtLeast(800*time.Millisecond))
				if err != nil {
					t.Error(err)
				}
			})
			if err := <-ended; (err != nil) != (c.held < 800*time.Millisecond) {
				t.Errorf("Shutdown: %v", err)
			}
			if synctest.Wait(); f.holder(job) != nil {
				t.Error("it is held on the server")
			}
		})
	}
}

// MaxWait is not for a try, which has its answer when the server gives it.
func TestMaxWaitIsNotForATry(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		l.Ping(context.Background())
		f.set(func() { f.delay = 30 * time.Millisecond })
		if _, ok, err := l.TryLock(context.Background(), job, advisory.MaxWait(10*time.Millisecond)); !ok || err != nil {
			t.Errorf("TryLock of a free key: %v, %v", ok, err)
		}
	})
}

// MaxWait bounds a wait for several keys, too, on a server that does not answer: a second more
// is for the question who holds them.
func TestMaxWaitOfSeveralKeys(t *testing.T) {
	keys := []advisory.Key{advisory.Int64(1), advisory.Int64(2), advisory.Int64(3)}
	for name, lock := range map[string]func(*locker.Locker, ...advisory.LockerOption) error{
		"Lock": func(l *locker.Locker, o ...advisory.LockerOption) error {
			_, err := l.Lock(context.Background(), job, o...)
			return err
		},
		"LockAll": func(l *locker.Locker, o ...advisory.LockerOption) error {
			_, err := l.LockAll(context.Background(), keys, o...)
			return err
		},
		"LockAny": func(l *locker.Locker, o ...advisory.LockerOption) error {
			_, err := l.LockAny(context.Background(), keys, o...)
			return err
		},
	} {
		timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
			l.Ping(context.Background())
			f.fallMute()
			takes(t, name, 1100*time.Millisecond, func() {
				if err := lock(l, advisory.MaxWait(100*time.Millisecond)); !errors.Is(err, advisory.ErrNotAcquired) {
					t.Errorf("%s: %v", name, err)
				}
			})
			f.speakAgain()
			time.Sleep(time.Minute)
			released(t, f, l, keys...)
		})
	}
}

// The end of LockAny's wait and the answer to its try come at the same time: it has the lock, or
// holds nothing.
func TestLockAnyEndsAsItIsAnswered(t *testing.T) {
	keys := []advisory.Key{advisory.Int64(1), advisory.Int64(2)}
	for range 300 {
		timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
			l.Ping(context.Background())
			f.taken(keys[0])
			f.set(func() { f.delay = 10 * time.Millisecond })
			lock, err := l.LockAny(context.Background(), keys, advisory.MaxWait(10*time.Millisecond))
			if err == nil {
				err = lock.Unlock()
			} else if errors.Is(err, advisory.ErrNotAcquired) {
				err = nil
			}
			if err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			released(t, f, l, keys[1])
		})
	}
}

// LockAll whose session is lost during its first try waits on another.
func TestLockAllAfterALossInItsFirstTry(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		keys := []advisory.Key{advisory.Int64(1), advisory.Int64(2)}
		lock(t, l, job)
		f.set(func() { f.delay = 100 * time.Millisecond })
		go func() { time.Sleep(50 * time.Millisecond); f.holder(job).Close() }()
		locks, err := l.LockAll(context.Background(), keys)
		if err != nil {
			t.Fatal(err)
		}
		if err := locks.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// A reader comes while the answer to another's statement is on its way, for which a token was
// drawn, and the other has left. A reader of another process had a larger token before that. The
// one who came last is not given the smaller one.
func TestATokenIsDrawnAfterItsCallBegan(t *testing.T) {
	const theirs = 1000
	ctx := context.Background()
	for _, way := range []struct {
		name    string
		taken   bool // the first waits on the server
		transit time.Duration
	}{
		{"a try", false, bound.Grace + 500*time.Millisecond}, // for which the first waits no longer
		{"a wait", true, 100 * time.Millisecond},
	} {
		t.Run(way.name, func(t *testing.T) {
			timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
				if err := l.Ping(ctx); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // the session's own ping is answered
				if way.taken {
					f.taken(job)
				} else {
					f.set(func() { f.transit = way.transit })
				}
				firstCtx, leave := context.WithCancel(ctx)
				first := make(chan error, 1)
				go func() {
					_, err := l.Lock(firstCtx, job, advisory.Shared)
					first <- err
				}()
				time.Sleep(50 * time.Millisecond)
				if way.taken {
					f.set(func() {
						f.transit = way.transit
						f.free(job.String())
					})
					time.Sleep(50 * time.Millisecond)
				}
				f.set(func() { f.transit = 0 }) // of what is sent from now on
				leave()
				if err := <-first; !errors.Is(err, context.Canceled) {
					t.Errorf("the first: %v", err)
				}
				f.set(func() {
					if f.tokens == 0 {
						t.Error("no token was drawn")
					}
					f.tokens = theirs
				})
				lock, err := l.Lock(ctx, job, advisory.Shared)
				if err != nil {
					t.Fatal(err)
				}
				if lock.Token() <= 1<<48+theirs {
					t.Errorf("token %d, and another had %d before", lock.Token(), 1<<48+theirs)
				}
				if err := lock.Unlock(); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Minute)
				released(t, f, l, job)
			}, locker.WithFencing())
		})
	}
}
