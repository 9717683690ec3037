package failover_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/netns"
	"github.com/pgadvisory/pgadvisory/locker"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

const (
	partFailover = 6 * time.Second
	stopMargin   = time.Second
)

// newSite skips the test where there is no network to cut.
func newSite(t *testing.T) *harness.Site {
	pair, err := netns.New(t)
	if err != nil {
		t.Skip(err)
	}
	s := &harness.Site{T: t, Pair: pair}
	s.Server = pgtest.Options{
		Netns:    pair.ServerNS,
		Settings: []string{"listen_addresses=" + pair.ServerIP, "max_connections=500"},
	}.NewServer(t)
	s.Command(pair.ServerNS, "ip", "route", "add", "10.231.1.0/24", "via", pair.ClientIP)
	s.Watch = harness.Drivers[0].Open(t, s.Server.SocketURL())
	s.Watch.SetMaxOpenConns(20)
	s.Lag = harness.WatchLag(t)
	return s
}

// locker is one of that machine. It is closed at the end, as far as it can be.
func newLocker(m *harness.Machine, t *testing.T, d harness.Driver, application string) *locker.Locker {
	l := locker.New(d.Between(t, m, m.Server.URL()).DB, locker.WithFailover(partFailover), locker.WithApplicationName(application))
	t.Cleanup(func() { l.Close() })
	return l
}

// A partition is how a machine is cut off.
type partition struct {
	name string
	dir  netns.Direction
	busy bool // in the middle of a statement
}

var partitions = []partition{
	{"both ways", netns.Both, false},
	{"client to server", netns.Up, false},
	{"server to client", netns.Down, false},
	{"in a statement", netns.Both, true},
}

// A holder that is cut off gives up before its lock goes to another, who gets it in
// bounded time. PGADVISORY_PARTITIONS says how many, at most 20.
func TestLockerAcrossAPartition(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	n := harness.Number(t, "PGADVISORY_PARTITIONS", 4)
	if n > 20 { // all are cut off at once, and the server has no connections for more
		t.Fatalf("PGADVISORY_PARTITIONS is %d, and at most 20: repeat them with -count", n)
	}
	s := newSite(t)
	harness.AtOnce(t, func(all *harness.Together) {
		for i := range n {
			p := partitions[i%len(partitions)]
			for j, d := range harness.Drivers[:2] {
				all.Start(fmt.Sprintf("holder %d %s, %s", i+1, p.name, d.Name), func(t *testing.T) { cutHolder(s, t, d, p, 2*i+j+1) })
			}
		}
		for j, d := range harness.Drivers[:2] {
			all.Start("waiter, the lock is released in its slice, "+d.Name, func(t *testing.T) { cutWaiter(s, t, d, true, 201+10*j) })
			all.Start("waiter, the lock is released after its slice, "+d.Name, func(t *testing.T) { cutWaiter(s, t, d, false, 221+10*j) })
		}
	})
	t.Logf("this machine was late by up to %v", s.Lag.Get().Round(time.Millisecond))
}

func cutHolder(s *harness.Site, t *testing.T, d harness.Driver, p partition, n int) {
	k := advisory.Int64(int64(n))
	m := s.Machine(n)
	holder := newLocker(m, t, d, "holder")
	lock, ok := harness.LockerTry(t, holder, k)
	if !ok {
		t.Fatal("not free")
	}
	granted := make(chan time.Time, 1)
	other := harness.Drivers[(n+1)%2].Open(t, s.Server.SocketURL()).Locker(t)
	go func() {
		lock, err := other.Lock(context.Background(), k)
		at := time.Now()
		if err != nil {
			t.Error(err)
		} else {
			lock.Unlock()
		}
		granted <- at
	}()
	doWaits(s, t, k)
	if p.busy {
		for g := range 8 {
			go func() {
				for lock.Context().Err() == nil {
					if lock, ok, _ := holder.TryLock(context.Background(), advisory.Pair(int32(n), int32(g))); ok {
						lock.Unlock()
					}
				}
			}()
		}
	}
	time.Sleep(rand.N(harness.Heartbeat)) // no matter when since the last ping
	m.Cut(p.dir)
	defer m.Heal(p.dir)
	cut := time.Now()

	<-lock.Context().Done()
	told := time.Now()
	if !errors.Is(context.Cause(lock.Context()), advisory.ErrLost) {
		t.Errorf("cause %v", context.Cause(lock.Context()))
	}
	var at time.Time
	select {
	case at = <-granted:
	case <-time.After(partFailover + harness.Patience):
		t.Fatalf("not free after %v", partFailover+harness.Patience)
	}
	margin, lag := at.Sub(told), s.Lag.Get()
	t.Logf("the holder's Context ended %.2f s after the cut, another had the lock after %.2f s: %.2f s between", told.Sub(cut).Seconds(), at.Sub(cut).Seconds(), margin.Seconds())
	// The Locker's timer may have been late, and so may this goroutine.
	if margin < stopMargin-2*lag {
		t.Errorf("only %v between (this machine was late by up to %v)", margin, lag)
	}
	if after := at.Sub(cut); after > partFailover+time.Second+lag {
		t.Errorf("free only after %v (this machine was late by up to %v)", after, lag)
	}
}

// waits waits until some session waits for k, and returns its pid.
func doWaits(s *harness.Site, t *testing.T, k advisory.Key) (pid int) {
	t.Helper()
	n, _ := k.Int64()
	harness.Eventually(t, "it waits", func() bool {
		err := s.Watch.QueryRow("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid = 0 AND objid = $1", n).Scan(&pid)
		return err == nil
	})
	return pid
}

// has reports whether a session has k, or waits for it.
func has(s *harness.Site, t *testing.T, pid int, k advisory.Key) (granted, waits bool) {
	t.Helper()
	n, _ := k.Int64()
	err := s.Watch.QueryRow("SELECT granted FROM pg_locks WHERE locktype = 'advisory' AND pid = $1 AND classid = 0 AND objid = $2", pid, n).Scan(&granted)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		t.Error(err)
	}
	return granted, err == nil && !granted
}

// cutWaiter cuts off a machine whose Locker waits. If its turn comes within its slice it
// is granted the lock, and that is freed in bounded time; later it never is.
func cutWaiter(s *harness.Site, t *testing.T, d harness.Driver, inSlice bool, n int) {
	k := advisory.Int64(int64(n))
	keeper := s.Watch.NewConn(t)
	for try := range 9 {
		// The waiter of an earlier try may have it for as long as it takes to notice that it is gone.
		harness.Eventually(t, "the lock is free", func() bool { return harness.TryLock(t, keeper, k) })
		if cutWaiterOnce(s, t, d, inSlice, s.Machine(n+try), k, keeper) {
			return
		}
	}
	t.Error("this machine was too slow to cut a waiter off within its slice")
}

func cutWaiterOnce(s *harness.Site, t *testing.T, d harness.Driver, inSlice bool, m *harness.Machine, k advisory.Key, keeper sqlconn.Conn) (done bool) {
	waiter := newLocker(m, t, d, "waiter")
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		if _, err := waiter.Lock(ctx, k); err == nil {
			t.Error("the waiter got the lock")
		}
	}()
	pid := doWaits(s, t, k)
	slice := ""
	harness.Eventually(t, "a slice begins", func() bool {
		if now := doWaits(s, t, k); now != pid { // on a busy machine a session may be given up
			pid, slice = now, ""
		}
		now := harness.Ask[string](t, s.Watch, "SELECT query_start::text FROM pg_stat_activity WHERE pid = $1 AND state = 'active' UNION ALL SELECT ''", pid)
		begins := slice != "" && now != "" && now != slice
		slice = now
		return begins
	})
	m.Cut(netns.Both)
	defer func() {
		cancel()
		m.Heal(netns.Both)
	}()
	if !inSlice {
		harness.Eventually(t, "the slice ends", func() bool { _, waits := has(s, t, pid, k); return !waits })
	}
	if granted, _ := has(s, t, pid, k); granted {
		t.Fatal("granted while another has it")
	}
	other := s.Watch.Locker(t)
	got := make(chan time.Time, 1)
	start := time.Now()
	harness.Unlock(t, keeper, k)
	granted, _ := has(s, t, pid, k)
	if inSlice && !granted {
		return false // the slice was over
	}
	go func() {
		lock, err := other.Lock(context.Background(), k)
		got <- time.Now()
		if err != nil {
			t.Error(err)
		} else {
			lock.Unlock()
		}
	}()
	var at time.Time
	for at.IsZero() {
		select {
		case at = <-got:
		case <-time.After(10 * time.Millisecond):
			if granted, _ := has(s, t, pid, k); granted && !inSlice {
				t.Error("the lock was granted to a client that had vanished a slice before")
			}
		}
		if time.Since(start) > partFailover+harness.Patience {
			t.Fatal("never free")
		}
	}
	lag := s.Lag.Get()
	t.Logf("another had the lock %.2f s after its release", at.Sub(start).Seconds())
	if after := at.Sub(start); after > partFailover+time.Second+lag {
		t.Errorf("free only after %v (this machine was late by up to %v)", after, lag)
	}
	return true
}
