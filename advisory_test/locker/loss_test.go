package locker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/proxy"
	"github.com/pgadvisory/pgadvisory/locker"
)

// A loser is a Locker that is about to lose its session, with some locks on it.
type loser struct {
	*testing.T
	*harness.Pool
	link   *proxy.Proxy
	server *pgtest.Server
	l      *locker.Locker
	other  *locker.Locker // past the proxy
	watch  *harness.Pool  // as well
	pid    int
	locks  advisory.Locks
	struck time.Time
}

func newLoser(t *testing.T, d harness.Driver, server *pgtest.Server, opts ...locker.Option) *loser {
	url := server.Database(t)
	s := &loser{T: t, server: server, watch: d.Open(t, url)}
	s.watch.SetMaxOpenConns(8)
	s.Pool, s.link = d.Proxied(t, url)
	s.other = s.watch.Locker(t)
	s.l = s.Locker(t, append(opts, locker.WithFailover(harness.QuickFailover), locker.WithApplicationName("loser"))...)
	for _, m := range []advisory.Mode{advisory.Exclusive, advisory.Shared, advisory.Exclusive, advisory.Exclusive} {
		lock, ok := harness.LockerTry(t, s.l, advisory.Int64(int64(len(s.locks))), m)
		if !ok {
			t.Fatal("not free")
		}
		s.locks = append(s.locks, lock)
	}
	s.pid = harness.Ask[int](t, s.watch, "SELECT pid FROM pg_stat_activity WHERE application_name = 'loser' AND datname = current_database()")
	return s
}

// told waits until the locks are lost and returns when that was. One is not lost long
// before another.
func (s *loser) told() (at time.Time) {
	s.Helper()
	select {
	case <-s.locks[0].Context().Done():
	case <-time.After(harness.Patience):
		s.Fatalf("not told within %v", harness.Patience)
	}
	at = time.Now()
	s.l.Stats() // waits for whoever is about to tell
	for _, lock := range s.locks {
		if cause := context.Cause(lock.Context()); !errors.Is(cause, advisory.ErrLost) {
			s.Errorf("lock %v: cause %v", lock.Key(), cause)
		}
		if s.l.Holds(lock.Key()) {
			s.Errorf("Holds(%v) after the loss", lock.Key())
		}
	}
	return at
}

// held returns how many locks there are, by session.
func (s *loser) held() (byLoser, byOthers int) {
	s.Helper()
	all, _ := s.watch.Locks(s)
	byLoser = harness.Ask[int](s, s.watch, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = $1", s.pid)
	return byLoser, all - byLoser
}

// unlockAll unlocks what is lost.
func (s *loser) unlockAll() {
	s.Helper()
	for _, lock := range s.locks {
		if err := lock.Unlock(); !errors.Is(err, advisory.ErrLost) {
			s.Errorf("Unlock after the loss: %v", err)
		}
		if err := lock.Unlock(); !errors.Is(err, advisory.ErrNotHeld) {
			s.Errorf("second Unlock after the loss: %v", err)
		}
	}
}

// ends checks what is after a loss, when the link and the server are back: others
// have the keys, lost locks harm nobody, and the Locker works on.
func (s *loser) ends(serverFirst bool) {
	s.Helper()
	if !serverFirst {
		// All users but one have returned; the connection stays for that one.
		last := s.locks[1:]
		s.locks = s.locks[:1]
		s.unlockAll()
		s.locks = last
		if lock, ok := harness.LockerTry(s, s.other, last[0].Key()); ok {
			if after := time.Since(s.struck); after < harness.QuickFailover {
				s.Errorf("the lock of a holder that has not returned went to another after %v", after)
			}
			lock.Unlock()
		}
		s.unlockAll()
	}
	taken := advisory.Locks{}
	for i := range 4 {
		ctx, cancel := context.WithTimeout(s.Context(), harness.Patience)
		lock, err := s.other.Lock(ctx, advisory.Int64(int64(i)))
		cancel()
		if err != nil {
			s.Fatal(err)
		}
		taken = append(taken, lock)
	}
	if serverFirst {
		s.unlockAll()
	}
	if lock, ok := harness.LockerTry(s, s.l, advisory.Int64(100)); !ok {
		s.Error("no fresh session")
	} else if err := lock.Unlock(); err != nil {
		s.Error(err)
	}
	if _, ok := harness.LockerTry(s, s.l, advisory.Int64(0)); ok {
		s.Error("two holders")
	}
	if byLoser, others := s.held(); byLoser != 0 || others != len(taken) {
		s.Errorf("the loser's session holds %d, others %d", byLoser, others)
	}
	if err := taken.Unlock(); err != nil {
		s.Error(err)
	}
	s.watch.NoLocks(s)
}

// A breakage is a way to lose a session.
type breakage struct {
	name        string
	serverFirst bool // the server lets go at once; the holder hears of it at its next ping
	strike      func(s *loser)
	mend        func(s *loser)
}

func (b breakage) String() string { return b.name }

func freeze(dir proxy.Direction) breakage {
	return breakage{"frozen " + dir.String(), false, func(s *loser) { s.link.Freeze(dir) }, func(s *loser) { s.link.Thaw() }}
}

var breakages = []breakage{
	{"terminate", true, func(s *loser) { harness.DoSQL(s, s.watch, "SELECT pg_terminate_backend($1)", s.pid) }, nil},
	{"reset", true, func(s *loser) { s.link.CutAll() }, nil},
	freeze(proxy.Both), freeze(proxy.Up), freeze(proxy.Down),
	{"backend stopped", false, func(s *loser) { s.signal(syscall.SIGSTOP) }, func(s *loser) { s.signal(syscall.SIGCONT) }},
}

func (s *loser) signal(sig syscall.Signal) {
	s.Helper()
	if s.server.Kind() != "binaries" {
		s.Skip("the server's processes are not of this machine")
	}
	if err := syscall.Kill(s.pid, sig); err != nil {
		s.Fatal(err)
	}
}

func (b breakage) is(s *loser, told time.Duration) {
	bound := harness.QuickDeadline
	if b.serverFirst {
		bound = harness.Heartbeat
	}
	s.Logf("%s: told after %v (%v is due)", b.name, told.Round(time.Millisecond), bound)
	if told > bound+harness.Slack {
		s.Errorf("told after %v", told)
	}
}

// The Context of each lock of a session ends with ErrLost, whatever ends the session.
func TestLockerTellsEveryLoss(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t)
	harness.CasesAtOnce(t, breakages, func(t *testing.T, d harness.Driver, b breakage) {
		s := newLoser(t, d, server)
		waiter := make(chan error, 1) // of the same process, in the gate of a lost lock
		go func() {
			lock, err := s.l.Lock(context.Background(), s.locks[0].Key())
			if err == nil {
				err = lock.Unlock()
			}
			waiter <- err
		}()
		harness.Eventually(t, "it waits", func() bool { return s.l.Stats().Waiting == 1 })

		s.struck = time.Now()
		b.strike(s)
		b.is(s, s.told().Sub(s.struck))
		if b.mend != nil {
			b.mend(s)
		}
		if b.serverFirst {
			if err := <-waiter; err != nil {
				t.Errorf("the waiter: %v", err)
			}
		}
		s.ends(b.serverFirst)
		if !b.serverFirst {
			if err := <-waiter; err != nil {
				t.Errorf("the waiter: %v", err)
			}
		}
	})
}

// The same for what befalls all of a server.
func TestLockerTellsTheLossOfTheServer(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t)
	must := func(do func() error) {
		t.Helper()
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range []struct {
		breakage
		strike, mend func() error
	}{
		{breakage{name: "paused"}, server.Pause, server.Resume},
		{breakage{name: "stopped, fast", serverFirst: true}, func() error { return server.Stop("fast") }, server.Start},
		{breakage{name: "stopped, immediate", serverFirst: true}, func() error { return server.Stop("immediate") }, server.Start},
		{breakage{name: "crashed", serverFirst: true}, server.Crash, server.Start},
	} {
		t.Run(b.name, func(t *testing.T) {
			var losers []*loser
			for _, d := range harness.Drivers[:2] {
				losers = append(losers, newLoser(t, d, server))
			}
			struck := time.Now()
			must(b.strike)
			var told sync.WaitGroup
			for _, s := range losers {
				s.struck = struck
				told.Go(func() { b.is(s, s.told().Sub(struck)) })
			}
			told.Wait()
			must(b.mend)
			for _, s := range losers {
				s.watch.Reconnect()
				s.other = s.watch.Locker(t)
				s.ends(b.serverFirst)
			}
		})
	}
}

// A holder that gave up by its deadline may still be at work, and the server may still
// hold its lock: to close the connection would hand the lock over.
func TestLostConnectionIsKeptForTheWork(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.SharedServer(t)
	harness.CasesAtOnce(t, []keeping{returned, failedOver}, func(t *testing.T, d harness.Driver, u keeping) {
		s := newLoser(t, d, server)
		granted := make(chan time.Time, 1)
		go func() {
			lock, err := s.other.Lock(context.Background(), s.locks[0].Key())
			at := time.Now()
			if err != nil {
				t.Error(err)
			} else if err := lock.Unlock(); err != nil {
				t.Error(err)
			}
			granted <- at
		}()
		harness.Eventually(t, "the other waits", func() bool { _, w := s.watch.Locks(t); return w == 1 })
		s.link.Reset()
		struck := time.Now()
		s.link.Freeze(proxy.Down) // what the client does is seen by the server
		told := s.told()
		var due time.Time
		if u == returned {
			time.Sleep(700 * time.Millisecond)
			if due = time.Now(); due.After(struck.Add(harness.QuickFailover)) {
				due = struck.Add(harness.QuickFailover) // this machine is slow
			}
			s.unlockAll()
		} else {
			// It was told a deadline after the last answer, which came a heartbeat
			// before the link died, at the earliest.
			due = struck.Add(harness.QuickFailover)
		}
		// The driver cancels what it is stuck in as it closes the connection.
		harness.Eventually(t, "it closes the connection", func() bool { return len(granted) > 0 || s.link.Stats().CancelRequests > 0 })
		closed := time.Now()
		s.link.Thaw()
		at := <-granted
		t.Logf("told after %v, closed %v later, and the lock went to another %v after that",
			told.Sub(struck).Round(time.Millisecond), closed.Sub(told).Round(time.Millisecond), at.Sub(closed).Round(time.Millisecond))
		if first := slices.MinFunc([]time.Time{closed, at}, time.Time.Compare); first.Before(due) {
			t.Errorf("closed %v too early", due.Sub(first))
		}
		if u != returned {
			s.unlockAll()
		}
		harness.Eventually(t, "the session is gone", func() bool {
			return harness.Ask[int](t, s.watch, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", s.pid) == 0
		})
	})
}

// keeping is how long a lost connection is kept.
type keeping string

const (
	returned   keeping = "until its user has returned"
	failedOver keeping = "for the failover time"
)

func (u keeping) String() string { return string(u) }

// A Locker on a dead link does not hang: a wait ends with MaxWait, and any other call in bounded time.
func TestLockerOnADeadLinkReturns(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.SharedServer(t)
	harness.CasesAtOnce(t, []proxy.Direction{proxy.Both, proxy.Up, proxy.Down}, func(t *testing.T, d harness.Driver, dir proxy.Direction) {
		s := newLoser(t, d, server)
		s.link.Freeze(dir)
		s.told()
		s.unlockAll()
		calls := map[string]func() (advisory.Locks, error){
			"TryLock": func() (advisory.Locks, error) {
				lock, _, err := s.l.TryLock(context.Background(), advisory.Int64(10))
				return advisory.Locks{lock}, err
			},
			"Lock": func() (advisory.Locks, error) {
				lock, err := s.l.Lock(context.Background(), advisory.Int64(11), advisory.MaxWait(5*time.Second))
				return advisory.Locks{lock}, err
			},
			"LockAll": func() (advisory.Locks, error) {
				return s.l.LockAll(context.Background(), harness.KeysUpTo(15)[12:], advisory.MaxWait(5*time.Second))
			},
			"LockAny": func() (advisory.Locks, error) {
				lock, err := s.l.LockAny(context.Background(), harness.KeysUpTo(18)[15:], advisory.MaxWait(5*time.Second))
				return advisory.Locks{lock}, err
			},
			"Lock, MaxWait": func() (advisory.Locks, error) {
				lock, err := s.l.Lock(context.Background(), advisory.Int64(18), advisory.MaxWait(100*time.Millisecond))
				return advisory.Locks{lock}, err
			},
			"Ping": func() (advisory.Locks, error) { return nil, s.l.Ping(context.Background()) },
		}
		const connectTime = 12 * time.Second // of the Locker, with the driver's grace
		var wg sync.WaitGroup
		for name, call := range calls {
			done := make(chan error, 1)
			start := time.Now()
			go func() {
				locks, err := call()
				if err == nil {
					locks.Unlock()
				}
				done <- err
			}()
			wg.Go(func() {
				select {
				case err := <-done:
					if err == nil {
						t.Errorf("%s on a dead link: no error", name)
					}
					t.Logf("%s: %v, %v", name, time.Since(start).Round(time.Millisecond), err)
				case <-time.After(connectTime + harness.Slack):
					t.Errorf("%s has not returned", name)
				}
			})
		}
		wg.Wait()
		s.link.Thaw()
		harness.Eventually(t, "it works again", func() bool {
			lock, ok, err := s.l.TryLock(context.Background(), harness.Key)
			if ok {
				lock.Unlock()
			}
			return ok && err == nil
		})
		s.watch.NoLocks(t)
	})
}
