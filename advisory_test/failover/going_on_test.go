//go:build unix

package failover_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/proxy"
	"github.com/pgadvisory/pgadvisory/locker"
)

// The primary is killed and the standby promoted while calls wait. They have their locks at the new
// primary. The standby is met before it is promoted, and is no reason to end: pgx by a DSN of two hosts
// that asks for a primary, lib/pq by an address that leads to it. PGADVISORY_PROMOTIONS says how often.
func TestLockerGoesOnAtTheNewPrimary(t *testing.T) {
	pgtest.Slow(t)
	for _, d := range harness.Drivers[:2] {
		t.Run(d.Name, func(t *testing.T) {
			var asked, done harness.Spread
			for i := range harness.Number(t, "PGADVISORY_PROMOTIONS", 1) {
				t.Run(strconv.Itoa(i+1), func(t *testing.T) {
					sinceAsked, sinceDone := goOnAtTheNewPrimary(t, d)
					asked, done = append(asked, sinceAsked), append(done, sinceDone)
				})
			}
			t.Logf("all waits had their locks, after the promotion was asked for: %v; after it was done: %v", asked, done)
		})
	}
}

// goOnAtTheNewPrimary returns how long after the promotion was asked for, and after it was done, all
// waits had their locks.
func goOnAtTheNewPrimary(t *testing.T, d harness.Driver) (sinceAsked, sinceDone time.Duration) {
	r := harness.NewReplication(t, 1)
	a, b := r.Primary, r.Standbys[0]
	harness.Occupy(t, a.SocketURL())
	address := proxy.New(t, a.Addr())
	dsn := address.URL(a.URL())
	if d.Name == "pgx" {
		dsn = harness.DSN(t, a, b)
	}
	l := locker.New(d.Open(t, dsn).DB)
	t.Cleanup(func() { l.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	held, ok := harness.LockerTry(t, l, harness.Key)
	if !ok {
		t.Fatal("not free")
	}
	var waits harness.Waits
	waits.Begin(ctx, "waits before", l)
	harness.Eventually(t, "they wait", func() bool { return l.Stats().Waiting >= len(harness.WaitingCalls) })

	if err := a.Crash(); err != nil {
		t.Fatal(err)
	}
	address.Redirect(b.Addr())
	address.CutAll()
	<-held.Context().Done()
	if cause := context.Cause(held.Context()); !errors.Is(cause, advisory.ErrLost) {
		t.Errorf("the lock that was held ended with %v", cause)
	}
	waits.Begin(ctx, "waits meanwhile", l)
	time.Sleep(3 * time.Second)
	if _, ok, err := l.TryLock(ctx, advisory.Name("not waited for")); ok || err == nil {
		t.Errorf("TryLock before the promotion: %v, %v", ok, err)
	} else if d.Name == "pq" && !errors.Is(err, advisory.ErrUnsafeServer) {
		t.Errorf("TryLock at a standby: %v", err)
	}
	asked := time.Now()
	b.Promote()
	promoted := time.Now()
	n := waits.End(t)
	sinceAsked, sinceDone = time.Since(asked), time.Since(promoted)
	t.Logf("%d calls had their locks within %.2f s of the promotion, which took %.2f s",
		n, sinceDone.Seconds(), promoted.Sub(asked).Seconds())
	return sinceAsked, sinceDone
}

// The hosts of a machine are servers that it tries in order, as a driver that knows several hosts
// does. Each has two seconds to accept.
type hosts struct {
	*harness.Machine
	addrs []string
}

func (h hosts) Dial(network, address string) (net.Conn, error) {
	return h.DialContext(context.Background(), network, address)
}

func (h hosts) DialTimeout(network, address string, d time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return h.DialContext(ctx, network, address)
}

func (h hosts) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	var errs error
	for _, addr := range h.addrs {
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		conn, err := h.Machine.DialContext(short, network, addr)
		cancel()
		if err == nil {
			return conn, nil
		}
		errs = errors.Join(errs, err)
	}
	return nil, errs
}

// The host of the first server goes silent, with six idle connections of the pool to it. The Locker goes
// on at the second within the time that each part may take: a second for the first idle connection, one
// for all others, two to connect to the first host, and a pause.
func TestSixIdleConnectionsToASilentHost(t *testing.T) {
	pgtest.Slow(t)
	for _, d := range harness.Drivers[:2] {
		t.Run(d.Name, func(t *testing.T) {
			s := newSite(t)
			m := s.Machine(1)
			const other = "10.231.3.1"
			s.Command(s.Pair.ServerNS, "ip", "address", "add", other+"/32", "dev", "lo")
			s.Command(s.Pair.ClientNS, "ip", "route", "add", other+"/32", "via", s.Pair.ServerIP)
			second := pgtest.Options{Netns: s.Pair.ServerNS, Settings: []string{"listen_addresses=" + other}}.NewServer(t)
			// Both have the same password, for a client that does not know which it meets.
			for _, url := range []string{s.Server.SocketURL(), second.SocketURL()} {
				harness.DoSQL(t, harness.Drivers[0].Open(t, url), "ALTER ROLE postgres PASSWORD 'word'")
			}
			one := "postgres://postgres:word@" + s.Server.Addr() + "/postgres?sslmode=disable"
			dsn, by := harness.DSNOf(t, one, s.Server.Addr(), second.Addr())+" connect_timeout=2", harness.Dialer(m)
			if d.Name == "pq" {
				dsn, by = one, hosts{m, []string{s.Server.Addr(), second.Addr()}}
			}
			db, err := harness.OpenBy(by, d.Sql, dsn)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			l := locker.New(db, locker.WithFailover(partFailover))
			t.Cleanup(func() { l.Close() })
			held, ok := harness.LockerTry(t, l, harness.Key)
			if !ok {
				t.Fatal("not free")
			}
			got := make(chan error, 1)
			k := advisory.Int64(1)
			if !harness.TryLock(t, s.Watch.NewConn(t), k) {
				t.Fatal("not free")
			}
			go func() { got <- l.Do(t.Context(), k, func(context.Context) error { return nil }) }()
			doWaits(s, t, k)
			const idle = 6
			leaveIdle(t, db, idle)
			time.Sleep(1100 * time.Millisecond) // after which pgx asks an idle connection for an answer
			if n := db.Stats().Idle; n != idle {
				t.Fatalf("%d connections are idle", n)
			}

			s.Command(s.Pair.ServerNS, "iptables", "-w", "-A", "INPUT", "-d", s.Pair.ServerIP, "-j", "DROP")
			cut := time.Now()
			<-held.Context().Done()
			lost := time.Now()
			select {
			case err = <-got:
			case <-time.After(4 * harness.Patience):
				err = errors.New("not back")
			}
			t.Logf("lost %.2f s after the cut, back %.2f s after that", lost.Sub(cut).Seconds(), time.Since(lost).Seconds())
			if back := time.Since(lost); err != nil || back > harness.Patience {
				t.Errorf("back after %v: %v", back, err)
			}
		})
	}
}

// leaveIdle leaves n connections in the pool that nobody uses.
func leaveIdle(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	db.SetMaxIdleConns(n)
	conns := make([]*sql.Conn, n)
	var errs error
	for i := range conns {
		var err error
		conns[i], err = db.Conn(t.Context())
		errs = errors.Join(errs, err)
	}
	for _, conn := range conns {
		if conn != nil {
			conn.Close()
		}
	}
	if errs != nil {
		t.Fatal(errs)
	}
}
