package advisory_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/netns"
	"github.com/pgadvisory/pgadvisory/locker"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

const (
	partFailover = 6 * time.Second
	stopMargin   = time.Second
)

// A site is a server, and machines that reach it over a network.
type site struct {
	*testing.T
	pair   *netns.Pair
	server *pgtest.Server
	lag    *lag
	watch  *pool // beside the server
}

// newSite skips the test where there is no network to cut.
func newSite(t *testing.T) *site {
	pair, err := netns.New(t)
	if err != nil {
		t.Skip(err)
	}
	s := &site{T: t, pair: pair}
	s.server = pgtest.Options{
		Netns:    pair.ServerNS,
		Settings: []string{"listen_addresses=" + pair.ServerIP, "max_connections=500"},
	}.NewServer(t)
	s.command(pair.ServerNS, "ip", "route", "add", "10.231.1.0/24", "via", pair.ClientIP)
	s.watch = drivers[0].open(t, s.server.SocketURL())
	s.watch.SetMaxOpenConns(20)
	s.lag = watchLag(t)
	return s
}

func (s *site) command(ns, name string, args ...string) {
	s.Helper()
	if out, err := s.pair.Command(ns, name, args...).CombinedOutput(); err != nil {
		s.Errorf("%s %q: %v: %s", name, args, err, out)
	}
}

// A machine is one of many that have the network in common: by an address of its own it
// can be cut off alone. It dials as a pair does.
type machine struct {
	*site
	ip string
}

func (s *site) machine(n int) *machine {
	m := &machine{s, fmt.Sprintf("10.231.1.%d", n)}
	s.command(s.pair.ClientNS, "ip", "address", "add", m.ip+"/32", "dev", "lo")
	return m
}

func (m *machine) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = m.pair.In(m.pair.ClientNS, func() (err error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(m.ip)}}
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

func (m *machine) Dial(network, address string) (net.Conn, error) {
	return m.DialContext(context.Background(), network, address)
}

func (m *machine) DialTimeout(network, address string, d time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return m.DialContext(ctx, network, address)
}

// cut has all packets lost where they arrive, as on a line that is cut.
func (m *machine) cut(dir netns.Direction)  { m.rule("-A", dir) }
func (m *machine) heal(dir netns.Direction) { m.rule("-D", dir) }

func (m *machine) rule(action string, dir netns.Direction) {
	m.Helper()
	if dir&netns.Up != 0 {
		m.command(m.pair.ServerNS, "iptables", "-w", action, "INPUT", "-s", m.ip, "-j", "DROP")
	}
	if dir&netns.Down != 0 {
		m.command(m.pair.ClientNS, "iptables", "-w", action, "INPUT", "-d", m.ip, "-j", "DROP")
	}
}

// locker is one of that machine. It is closed at the end, as far as it can be.
func (m *machine) locker(t *testing.T, d driver, application string) *locker.Locker {
	l := locker.New(d.between(t, m, m.server.URL()).DB, locker.WithFailover(partFailover), locker.WithApplicationName(application))
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
// bounded time. PGADVISORY_PARTITIONS says how often to try.
func TestLockerAcrossAPartition(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	n := number(t, "PGADVISORY_PARTITIONS", 4)
	s := newSite(t)
	atOnce(t, func(all *together) {
		for i := range n {
			p := partitions[i%len(partitions)]
			for j, d := range drivers[:2] {
				all.run(fmt.Sprintf("holder %d %s, %s", i+1, p.name, d.name), func(t *testing.T) { s.cutHolder(t, d, p, 2*i+j+1) })
			}
		}
		for j, d := range drivers[:2] {
			all.run("waiter, the lock is released in its slice, "+d.name, func(t *testing.T) { s.cutWaiter(t, d, true, 201+10*j) })
			all.run("waiter, the lock is released after its slice, "+d.name, func(t *testing.T) { s.cutWaiter(t, d, false, 221+10*j) })
		}
	})
	t.Logf("this machine was late by up to %v", s.lag.get().Round(time.Millisecond))
}

func (s *site) cutHolder(t *testing.T, d driver, p partition, n int) {
	k := advisory.Int64(int64(n))
	m := s.machine(n)
	holder := m.locker(t, d, "holder")
	lock, ok := lockerTry(t, holder, k)
	if !ok {
		t.Fatal("not free")
	}
	granted := make(chan time.Time, 1)
	other := drivers[(n+1)%2].open(t, s.server.SocketURL()).locker(t)
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
	s.waits(t, k)
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
	time.Sleep(rand.N(heartbeat)) // no matter when since the last ping
	m.cut(p.dir)
	defer m.heal(p.dir)
	cut := time.Now()

	<-lock.Context().Done()
	told := time.Now()
	if !errors.Is(context.Cause(lock.Context()), advisory.ErrLost) {
		t.Errorf("cause %v", context.Cause(lock.Context()))
	}
	var at time.Time
	select {
	case at = <-granted:
	case <-time.After(partFailover + patience):
		t.Fatalf("not free after %v", partFailover+patience)
	}
	margin, lag := at.Sub(told), s.lag.get()
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
func (s *site) waits(t *testing.T, k advisory.Key) (pid int) {
	t.Helper()
	n, _ := k.Int64()
	eventually(t, "it waits", func() bool {
		err := s.watch.QueryRow("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid = 0 AND objid = $1", n).Scan(&pid)
		return err == nil
	})
	return pid
}

// has reports whether a session has k, or waits for it.
func (s *site) has(t *testing.T, pid int, k advisory.Key) (granted, waits bool) {
	t.Helper()
	n, _ := k.Int64()
	err := s.watch.QueryRow("SELECT granted FROM pg_locks WHERE locktype = 'advisory' AND pid = $1 AND classid = 0 AND objid = $2", pid, n).Scan(&granted)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		t.Error(err)
	}
	return granted, err == nil && !granted
}

// cutWaiter cuts off a machine whose Locker waits. If its turn comes within its slice it
// is granted the lock, and that is freed in bounded time; later it never is.
func (s *site) cutWaiter(t *testing.T, d driver, inSlice bool, n int) {
	k := advisory.Int64(int64(n))
	keeper := s.watch.conn(t)
	for try := range 9 {
		// The waiter of an earlier try may have it for as long as it takes to notice that it is gone.
		eventually(t, "the lock is free", func() bool { return tryLock(t, keeper, k) })
		if s.cutWaiterOnce(t, d, inSlice, s.machine(n+try), k, keeper) {
			return
		}
	}
	t.Error("this machine was too slow to cut a waiter off within its slice")
}

func (s *site) cutWaiterOnce(t *testing.T, d driver, inSlice bool, m *machine, k advisory.Key, keeper sqlconn.Conn) (done bool) {
	waiter := m.locker(t, d, "waiter")
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		if _, err := waiter.Lock(ctx, k); err == nil {
			t.Error("the waiter got the lock")
		}
	}()
	pid := s.waits(t, k)
	slice := ""
	eventually(t, "a slice begins", func() bool {
		if now := s.waits(t, k); now != pid { // on a busy machine a session may be given up
			pid, slice = now, ""
		}
		now := ask[string](t, s.watch, "SELECT query_start::text FROM pg_stat_activity WHERE pid = $1 AND state = 'active' UNION ALL SELECT ''", pid)
		begins := slice != "" && now != "" && now != slice
		slice = now
		return begins
	})
	m.cut(netns.Both)
	defer func() {
		cancel()
		m.heal(netns.Both)
	}()
	if !inSlice {
		eventually(t, "the slice ends", func() bool { _, waits := s.has(t, pid, k); return !waits })
	}
	if granted, _ := s.has(t, pid, k); granted {
		t.Fatal("granted while another has it")
	}
	other := s.watch.locker(t)
	got := make(chan time.Time, 1)
	start := time.Now()
	unlock(t, keeper, k)
	granted, _ := s.has(t, pid, k)
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
			if granted, _ := s.has(t, pid, k); granted && !inSlice {
				t.Error("the lock was granted to a client that had vanished a slice before")
			}
		}
		if time.Since(start) > partFailover+patience {
			t.Fatal("never free")
		}
	}
	lag := s.lag.get()
	t.Logf("another had the lock %.2f s after its release", at.Sub(start).Seconds())
	if after := at.Sub(start); after > partFailover+time.Second+lag {
		t.Errorf("free only after %v (this machine was late by up to %v)", after, lag)
	}
	return true
}
