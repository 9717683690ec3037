package netns

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	soon  = 20 * time.Second       // what is to happen happens within, retransmissions included
	never = 300 * time.Millisecond // what is not to happen has not within
)

func pair(t *testing.T) *Pair {
	t.Helper()
	p, err := New(t)
	if err != nil {
		t.Skip(err)
	}
	return p
}

// connect returns both ends of a connection between the namespaces.
func connect(t *testing.T, p *Pair) (client, server net.Conn) {
	t.Helper()
	listener := listen(t, p)
	client, err := p.DialTimeout("tcp", listener.Addr().String(), soon)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	server, err = listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

func listen(t *testing.T, p *Pair) (listener net.Listener) {
	t.Helper()
	err := p.In(p.ServerNS, func() (err error) {
		listener, err = net.Listen("tcp", p.ServerIP+":0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

func send(t *testing.T, conn net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(conn, s); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	conn.SetReadDeadline(time.Now().Add(soon))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("received %q (%v), want %q", got, err, want)
	}
}

// silent fails the test if anything arrives, the end included.
func silent(t *testing.T, conn net.Conn) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(never))
	var b [64]byte
	if n, err := conn.Read(b[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("received %q (%v), want nothing", b[:n], err)
	}
}

func TestDropAndHeal(t *testing.T) {
	for _, c := range []struct {
		dir      Direction
		up, down bool // still arrives
	}{
		{Up, false, true},
		{Down, true, false},
		{Both, false, false},
	} {
		t.Run(c.dir.String(), func(t *testing.T) {
			p := pair(t)
			client, server := connect(t, p)
			send(t, client, "ping")
			receive(t, server, "ping")
			send(t, server, "pong")
			receive(t, client, "pong")

			p.Drop(c.dir)
			send(t, client, "question")
			send(t, server, "answer")
			arrives := func(arrives bool, conn net.Conn, s string) {
				t.Helper()
				if arrives {
					receive(t, conn, s)
				} else {
					silent(t, conn)
				}
			}
			arrives(c.up, server, "question")
			arrives(c.down, client, "answer")

			p.Heal()
			if !c.up {
				receive(t, server, "question")
			}
			if !c.down {
				receive(t, client, "answer")
			}
		})
	}
}

func TestDialOverALinkThatDrops(t *testing.T) {
	p := pair(t)
	listener := listen(t, p)
	p.Drop(Both)
	ctx, cancel := context.WithTimeout(t.Context(), never)
	defer cancel()
	conn, err := p.DialContext(ctx, "tcp", listener.Addr().String())
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("dial: %v, %v; want a timeout", conn, err)
	}
	p.Heal()
	conn, err = p.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestDialNeedsAnIPAddress(t *testing.T) {
	p := pair(t)
	if _, err := p.Dial("tcp", "localhost:5432"); err == nil || !strings.Contains(err.Error(), "localhost") {
		t.Errorf("dial a name: %v", err)
	}
}

func TestAddresses(t *testing.T) {
	p := pair(t)
	client, server := connect(t, p)
	for _, c := range []struct {
		addr net.Addr
		want string
	}{
		{client.RemoteAddr(), p.ServerIP},
		{server.RemoteAddr(), p.ClientIP},
	} {
		if host, _, _ := net.SplitHostPort(c.addr.String()); host != c.want {
			t.Errorf("peer is %s, want %s", host, c.want)
		}
	}
}

func TestCommand(t *testing.T) {
	p := pair(t)
	for ns, ip := range map[string]string{p.ServerNS: p.ServerIP, p.ClientNS: p.ClientIP} {
		out, err := p.Command(ns, "ip", "-oneline", "-4", "address").CombinedOutput()
		if err != nil || !strings.Contains(string(out), ip+"/30") {
			t.Errorf("addresses in %s: %v\n%s", ns, err, out)
		}
	}
}

func TestPairsAreApart(t *testing.T) {
	p, other := pair(t), pair(t)
	client, server := connect(t, p)
	other.Drop(Both)
	send(t, client, "ping")
	receive(t, server, "ping")
	conn, err := other.DialTimeout("tcp", client.RemoteAddr().String(), never)
	if err == nil {
		conn.Close()
		t.Error("a listener of one pair is reached from another")
	}
}

func TestTheProcessStaysOutside(t *testing.T) {
	p := pair(t)
	outside, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 20 {
				p.In(p.ClientNS, func() error { return nil })
			}
		})
	}
	running.Go(func() { // an exit from within, as of t.FailNow
		if err := p.In(p.ClientNS, func() error { runtime.Goexit(); return nil }); err == nil {
			t.Error("In has no error for a function that did not return")
		}
	})
	running.Wait()
	var inside string
	p.In(p.ClientNS, func() (err error) {
		inside, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	})
	if inside == outside || inside == "" {
		t.Errorf("inside is %q, outside %q", inside, outside)
	}
	threads, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil || len(threads) == 0 {
		t.Fatal("no threads", err)
	}
	for _, thread := range threads {
		if ns, err := os.Readlink(thread); err == nil && ns != outside {
			t.Errorf("%s is %s, outside is %s", thread, ns, outside)
		}
	}
}

func TestRemovalKillsWhatStillRuns(t *testing.T) {
	var p *Pair
	var sleep *exec.Cmd
	t.Run("test", func(t *testing.T) {
		p = pair(t)
		sleep = start(t, p.Command(p.ServerNS, "sleep", "1000"))
	})
	if p == nil {
		t.Skip("see above")
	}
	gone(t, p.ServerNS)
	gone(t, p.ClientNS)
	killed(t, sleep)
}
