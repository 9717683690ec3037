package locker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/locker"
)

// errRefused is the error of a server that does not run.
var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// A stateError is an error of a server.
type stateError string

func (e stateError) Error() string    { return "SQLSTATE " + string(e) }
func (e stateError) SQLState() string { return string(e) }

// waiting are the calls that wait.
var waiting = map[string]func(ctx context.Context, l *locker.Locker, opts ...advisory.LockerOption) error{
	"Lock": func(ctx context.Context, l *locker.Locker, opts ...advisory.LockerOption) error {
		lock, err := l.Lock(ctx, advisory.Name("a"), opts...)
		lock.Unlock()
		return err
	},
	"Lock, shared": func(ctx context.Context, l *locker.Locker, opts ...advisory.LockerOption) error {
		lock, err := l.Lock(ctx, advisory.Name("b"), append(opts, advisory.Shared)...)
		lock.Unlock()
		return err
	},
	"Do": func(ctx context.Context, l *locker.Locker, opts ...advisory.LockerOption) error {
		return l.Do(ctx, advisory.Name("c"), func(context.Context) error { return nil }, opts...)
	},
	"LockAll": func(ctx context.Context, l *locker.Locker, opts ...advisory.LockerOption) error {
		locks, err := l.LockAll(ctx, []advisory.Key{advisory.Name("d"), advisory.Name("e")}, opts...)
		locks.Unlock()
		return err
	},
	"LockAny": func(ctx context.Context, l *locker.Locker, opts ...advisory.LockerOption) error {
		lock, err := l.LockAny(ctx, []advisory.Key{advisory.Name("f"), advisory.Name("g")}, opts...)
		lock.Unlock()
		return err
	},
	"Lead": func(ctx context.Context, l *locker.Locker, opts ...advisory.LockerOption) error {
		return l.Lead(ctx, advisory.Name("h"), func(context.Context) error { return nil }, opts...)
	},
	"Semaphore": func(ctx context.Context, l *locker.Locker, opts ...advisory.LockerOption) error {
		lock, err := l.Semaphore(advisory.Name("i"), 200).Acquire(ctx, semaphoreOptions(opts)...)
		lock.Unlock()
		return err
	},
}

func semaphoreOptions(opts []advisory.LockerOption) (list []advisory.SemaphoreOption) {
	for _, o := range opts {
		list = append(list, o.(advisory.SemaphoreOption))
	}
	return list
}

// waits begins each of the waiting calls and returns where their results come.
func waits(ctx context.Context, l *locker.Locker, times int) (ended chan string, n int) {
	ended = make(chan string, times*len(waiting))
	for name, call := range waiting {
		for range times {
			n++
			go func() { ended <- fmt.Sprintf("%s: %v", name, call(ctx, l)) }()
		}
	}
	return ended, n
}

// No session can be opened for minutes. However many calls wait, they share one attempt at a time, with
// pauses that grow and differ by chance. When the server is back all have their locks within a pause.
func TestWaitsGoOnThroughAnOutage(t *testing.T) {
	for name, before := range map[string]bool{"from the beginning": false, "after a loss": true} {
		t.Run(name, func(t *testing.T) {
			timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
				if before {
					lock(t, l, job)
				}
				f.set(func() { f.refused = errRefused })
				if before {
					f.holder(job).Close()
					time.Sleep(time.Second) // until the next ping
				}
				f.set(func() { f.dialed = nil })
				ended, n := waits(context.Background(), l, 8)
				for range 600 { // others join
					time.Sleep(500 * time.Millisecond)
					go l.Do(context.Background(), advisory.Name("late"), func(context.Context) error { return nil })
				}
				select {
				case who := <-ended:
					t.Fatalf("%s, though the server may come back", who)
				default:
				}
				synctest.Wait()
				dialed := f.campaigns()
				pauses(t, dialed, 50*time.Millisecond, 1500*time.Millisecond)
				if len(dialed) > 450 {
					t.Errorf("%d attempts in five minutes", len(dialed))
				}
				f.set(func() { f.refused = nil })
				allHaveLocks(t, ended, n)
			})
		})
	}
}

// allHaveLocks waits until the n calls have their locks, which takes no longer than two pauses.
func allHaveLocks(t *testing.T, ended <-chan string, n int) {
	t.Helper()
	back := time.Now()
	for range n {
		if who := <-ended; !strings.HasSuffix(who, ": <nil>") {
			t.Error(who)
		}
	}
	if d := time.Since(back); d > 3*time.Second {
		t.Errorf("the last call has its lock after %v", d)
	}
}

// A try during an outage makes an attempt of its own and returns its error at once. It gives the calls
// that wait no longer pause, and no error.
func TestTriesReportAnOutage(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		f.set(func() { f.refused = errRefused })
		ended, n := waits(context.Background(), l, 1)
		time.Sleep(time.Minute)
		for range 100 {
			var before int
			f.set(func() { before = len(f.dialed) })
			takes(t, "TryLock", 0, func() {
				if _, ok, err := l.TryLock(context.Background(), advisory.Name("tried")); ok || !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("TryLock: %v, %v", ok, err)
				}
			})
			takes(t, "TryLock of a key that readers wait for", 0, func() {
				if _, ok, err := l.TryLock(context.Background(), advisory.Name("b"), advisory.Shared); ok || !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("TryLock: %v, %v", ok, err)
				}
			})
			takes(t, "Lock with MaxWait(0)", 0, func() {
				if _, err := l.Lock(context.Background(), advisory.Name("tried"), advisory.MaxWait(0)); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Error(err)
				}
			})
			takes(t, "Ping", 0, func() {
				if err := l.Ping(context.Background()); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Error(err)
				}
			})
			f.set(func() {
				if len(f.dialed) == before {
					t.Error("no attempt was made")
				}
			})
			time.Sleep(time.Millisecond)
		}
		f.set(func() { f.refused = nil })
		allHaveLocks(t, ended, n)
	})
}

// What no attempt mends ends all waits at once, those that came before it, too.
func TestLastingFaultsEndWaits(t *testing.T) {
	for what, lasting := range map[string]error{
		"28P01": stateError("28P01"), "28000": stateError("28000"), "3D000": stateError("3D000"), "42501": stateError("42501"),
		"not PostgreSQL": &advisory.UnsafeServerError{Reason: advisory.NotPostgreSQL},
	} {
		for _, before := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, after a session: %v", what, before), func(t *testing.T) {
				timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
					if before {
						l.Ping(context.Background())
						f.conns[0].Close()
						time.Sleep(time.Second)
					}
					f.set(func() { f.refused = errRefused })
					ended, n := waits(context.Background(), l, 3)
					time.Sleep(time.Minute)
					f.set(func() { f.refused = errors.Join(errRefused, fmt.Errorf("another host: %w", lasting)) })
					time.Sleep(2 * time.Second)
					for range n {
						select {
						case who := <-ended:
							if !strings.Contains(who, what) || strings.Contains(who, advisory.ErrNotAcquired.Error()) {
								t.Error(who)
							}
						default:
							t.Fatal("a call goes on waiting")
						}
					}
					for name, call := range waiting {
						takes(t, name, 0, func() {
							if err := call(context.Background(), l); !errors.Is(err, lasting) {
								t.Errorf("%s: %v", name, err)
							}
						})
					}
				})
			})
		}
	}
}

// A pool that is closed ends all waits.
func TestClosedPoolEndsWaits(t *testing.T) {
	pooled(t, func(t *testing.T, f *fakeServer, db *sql.DB, l *locker.Locker) {
		f.set(func() { f.refused = errRefused })
		ended, n := waits(context.Background(), l, 2)
		time.Sleep(time.Minute)
		db.Close()
		time.Sleep(2 * time.Second)
		for range n {
			select {
			case who := <-ended:
				if !strings.Contains(who, "database is closed") {
					t.Error(who)
				}
			default:
				t.Fatal("a call goes on waiting")
			}
		}
	})
}

// The Observer hears of long waits during an outage, too.
func TestWaitingEventsInAnOutage(t *testing.T) {
	for name, call := range waiting {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var waited []time.Duration
			timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
				f.set(func() { f.refused = errRefused })
				ended := make(chan error)
				go func() { ended <- call(context.Background(), l) }()
				time.Sleep(79 * time.Second)
				mu.Lock()
				want := []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second}
				if !slices.Equal(waited, want) {
					t.Errorf("reported after %v, want %v", waited, want)
				}
				mu.Unlock()
				f.set(func() { f.refused = nil })
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}, advisory.WithObserver(observed(func(e advisory.Event) {
				if e.Kind == advisory.Waiting {
					mu.Lock()
					waited = append(waited, e.Waited)
					mu.Unlock()
				}
			})))
		})
	}
}

// Close and Shutdown end all waits, also those in a pause.
func TestClosedLockerEndsWaitsInAnOutage(t *testing.T) {
	for name, end := range map[string]func(*locker.Locker) error{
		"Close":    func(l *locker.Locker) error { return l.Close() },
		"Shutdown": func(l *locker.Locker) error { return l.Shutdown(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
				f.set(func() { f.refused = errRefused })
				ended, n := waits(context.Background(), l, 2)
				time.Sleep(time.Minute)
				takes(t, name, 0, func() {
					if err := end(l); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
				for range n {
					select {
					case who := <-ended:
						if !strings.HasSuffix(who, ": the Locker is closed") {
							t.Error(who)
						}
					default:
						t.Fatal("a call goes on waiting")
					}
				}
				before := len(f.campaigns())
				time.Sleep(time.Minute)
				if n := len(f.campaigns()) - before; n > 0 {
					t.Errorf("%d attempts after %s", n, name)
				}
			})
		})
	}
}

// What may be wrong for good, or only now, ends a wait of a Locker that never had a session. A hot
// standby is such: after a failover it may be about to be promoted.
func TestUnclearFaultsEndTheFirstWaitsOnly(t *testing.T) {
	faults := map[string]struct {
		endsLead bool
		set      func(f *fakeServer, on bool)
		is       func(err error) bool
	}{
		"standby": {
			true,
			func(f *fakeServer, on bool) { f.recovery = on },
			func(err error) bool {
				e, ok := errors.AsType[*advisory.UnsafeServerError](err)
				return ok && e.Reason == advisory.Standby
			},
		},
		"an error of the driver": {
			false,
			func(f *fakeServer, on bool) {
				if f.refused = nil; on {
					f.refused = errors.New("read only connection")
				}
			},
			func(err error) bool { return err != nil && strings.Contains(err.Error(), "read only connection") },
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
				f.set(func() { fault.set(f, true) })
				for name, call := range waiting {
					if name == "Lead" && !fault.endsLead {
						continue
					}
					takes(t, name, 0, func() {
						if err := call(context.Background(), l); !fault.is(err) {
							t.Errorf("%s: %v", name, err)
						}
					})
				}
				f.set(func() { fault.set(f, false) })
				held := lock(t, l, job)
				f.set(func() { fault.set(f, true) })
				f.holder(job).Close()
				ended, n := waits(context.Background(), l, 2)
				<-held.Context().Done()
				time.Sleep(time.Minute)
				if _, ok, err := l.TryLock(context.Background(), job); ok || !fault.is(err) {
					t.Errorf("TryLock: %v, %v", ok, err)
				}
				if err := l.Ping(context.Background()); !fault.is(err) {
					t.Errorf("Ping: %v", err)
				}
				f.set(func() { fault.set(f, false) })
				for range n {
					if who := <-ended; !strings.HasSuffix(who, ": <nil>") {
						t.Error(who)
					}
				}
			})
		})
	}
}

// A wait whose time ends during an outage ends on time. Its error is that of ctx and that of the last
// attempt to connect.
func TestWaitThatEndsInAnOutage(t *testing.T) {
	for name, call := range waiting {
		t.Run(name, func(t *testing.T) {
			timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
				f.set(func() { f.refused = errRefused })
				reason := errors.New("the pod is drained")
				const limit = 7 * time.Second
				for what, want := range map[string]error{"ctx": context.DeadlineExceeded, "a cause": reason, "MaxWait": advisory.ErrNotAcquired} {
					ctx, cancel := context.WithCancelCause(context.Background())
					var opts []advisory.LockerOption
					if what == "MaxWait" {
						opts = append(opts, advisory.MaxWait(limit))
					} else {
						time.AfterFunc(limit, func() { cancel(want) })
					}
					takes(t, what, limit, func() {
						err := call(ctx, l, opts...)
						e, ok := errors.AsType[*advisory.NotAcquiredError](err)
						if !ok || !errors.Is(err, want) || !errors.Is(err, syscall.ECONNREFUSED) || !errors.Is(e.Cause, syscall.ECONNREFUSED) {
							t.Errorf("%s: %v", what, err)
						}
						if dial, ok := errors.AsType[*net.OpError](err); !ok || dial.Op != "dial" {
							t.Errorf("%s: %v", what, err)
						}
					})
					cancel(nil)
				}
			})
		})
	}
}

// The first attempt to connect is under way when the time of a wait ends. The error says so.
func TestWaitThatEndsBeforeAnAnswer(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		f.fallMute()
		_, err := l.Lock(context.Background(), job, advisory.MaxWait(5*time.Second))
		if !errors.Is(err, advisory.ErrNotAcquired) || !strings.Contains(err.Error(), "the server has not answered") {
			t.Error(err)
		}
		f.speakAgain()
		held := lock(t, l, job)
		_, err = l.Lock(context.Background(), job, advisory.MaxWait(time.Second))
		if e, ok := errors.AsType[*advisory.NotAcquiredError](err); !ok || e.Cause != nil {
			t.Error(err)
		}
		held.Unlock()
	})
}

// The front session is lost and no other can be opened, while a session waits in slices. Calls that wait
// for other keys share the pauses.
func TestPausesWhileASessionWaits(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		f.taken(job)
		lock(t, l, advisory.Int64(1))
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		all.Go(func() { l.Lock(ctx, job) })
		time.Sleep(time.Second)
		f.set(func() { f.refused = stateError("53300") })
		f.holder(advisory.Int64(1)).Close()
		time.Sleep(time.Second)
		f.set(func() { f.dialed = nil })
		for i := range 50 {
			all.Go(func() { l.Do(ctx, advisory.Int64(int64(100+i)), func(context.Context) error { return nil }) })
		}
		time.Sleep(time.Minute)
		if n := len(f.campaigns()); n < 40 || n > 140 {
			t.Errorf("%d attempts in a minute", n)
		}
		cancel()
		all.Wait()
	})
}

// LockAll loses a lock while it waits for another. It takes that again before it returns.
func TestLockAllBeginsAgainAfterALoss(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		keys := []advisory.Key{advisory.Int64(1), advisory.Int64(2)}
		f.taken(keys[1])
		got := make(chan advisory.Locks, 1)
		go func() {
			locks, err := l.LockAll(context.Background(), keys)
			if err != nil {
				t.Error(err)
			}
			got <- locks
		}()
		time.Sleep(time.Second)
		f.holder(keys[0]).Close()
		f.set(func() { f.refused = errRefused })
		time.Sleep(5 * time.Second)
		f.set(func() { f.refused = nil })
		time.Sleep(5 * time.Second)
		f.set(func() { f.free(keys[1].String()) })
		locks := <-got
		if len(locks) != 2 {
			t.Fatalf("%d locks", len(locks))
		}
		for _, lock := range locks {
			if err := lock.Context().Err(); err != nil || f.holder(lock.Key()) == nil {
				t.Errorf("%s is lost: %v", lock.Key(), err)
			}
		}
		locks.Unlock()
	})
}

// The time of a LockAll ends while it gives back what it cannot use, and the server goes away. The error
// is that of a wait which has ended, not that of another attempt.
func TestLockAllThatEndsInAnOutage(t *testing.T) {
	timed(t, func(t *testing.T, f *fakeServer, l *locker.Locker) {
		l.Ping(context.Background())
		f.taken(job)
		const trip = 20 * time.Millisecond
		f.set(func() { f.delay = trip })
		time.AfterFunc(trip+trip/2, func() {
			f.set(func() {
				f.refused = errRefused
				f.conns[0].end()
			})
		})
		_, err := l.LockAll(context.Background(), []advisory.Key{job, advisory.Int64(5000)}, advisory.MaxWait(trip+trip/4))
		if !errors.Is(err, advisory.ErrNotAcquired) {
			t.Errorf("it ends with %v", err)
		}
	})
}
