// Package netns gives tests two hosts on one machine: two network namespaces of Linux, joined by a
// link that can lose every packet, without a reset or another sign. A process can run in either
// namespace, and the test process itself can connect from one.
//
// It needs root, and the programs ip and iptables; see [Available].
package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A Direction is a direction of the link, or both.
type Direction uint8

const (
	Up   Direction = 1 << iota // client to server
	Down                       // server to client
	Both = Up | Down
)

func (d Direction) String() string {
	switch d {
	case Up:
		return "up"
	case Down:
		return "down"
	case Both:
		return "both"
	}
	return "no direction"
}

// A Pair is two namespaces and the link between them. Nothing else can be reached from them, or can
// reach them. Every Pair has the same addresses, but no Pair can reach another.
//
// A Pair dials from the client's namespace: it implements Dialer of a lib/pq Connector, and its
// DialContext is a DialFunc of pgx.
type Pair struct {
	ServerNS, ClientNS string // names, for Command and In
	ServerIP, ClientIP string

	t testing.TB
}

const device = "link0" // either end of the link

var pairs atomic.Int64

// New makes a Pair. At the end of the test it is removed, with all processes that still run in it.
// Clean-ups that are registered later run first, and can stop those processes in order. New returns
// an error if a Pair cannot be made on this machine, so that the test can be skipped.
func New(t testing.TB) (*Pair, error) {
	if err := Available(); err != nil {
		return nil, err
	}
	p, err := newPair(t)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := p.remove(); err != nil {
			t.Errorf("netns: %v", err)
		}
	})
	return p, nil
}

func newPair(t testing.TB) (*Pair, error) {
	name := ownPrefix() + fmt.Sprint(pairs.Add(1))
	p := &Pair{
		ServerNS: name + "-server", ServerIP: "10.231.0.1",
		ClientNS: name + "-client", ClientIP: "10.231.0.2",
		t: t,
	}
	if err := p.setUp(); err != nil {
		p.remove()
		return nil, fmt.Errorf("netns: %w", err)
	}
	return p, nil
}

func (p *Pair) setUp() error {
	for _, args := range []string{
		"netns add " + p.ServerNS,
		"netns add " + p.ClientNS,
		"-n " + p.ServerNS + " link add " + device + " type veth peer name " + device + " netns " + p.ClientNS,
		"-n " + p.ServerNS + " address add " + p.ServerIP + "/30 dev " + device,
		"-n " + p.ClientNS + " address add " + p.ClientIP + "/30 dev " + device,
		"-n " + p.ServerNS + " link set lo up",
		"-n " + p.ClientNS + " link set lo up",
		"-n " + p.ServerNS + " link set " + device + " up",
		"-n " + p.ClientNS + " link set " + device + " up",
	} {
		if err := run("ip", strings.Fields(args)...); err != nil {
			return err
		}
	}
	return nil
}

func (p *Pair) remove() error {
	err := removeNS(p.ServerNS)
	if err2 := removeNS(p.ClientNS); err == nil {
		err = err2
	}
	return err
}

// Drop makes the link lose all packets in dir, until Heal. Packets in the other direction still
// arrive, unless they are dropped too.
func (p *Pair) Drop(dir Direction) {
	p.t.Helper()
	p.check(p.drop(dir))
}

// Heal ends Drop.
func (p *Pair) Heal() {
	p.t.Helper()
	p.check(p.heal())
}

// drop drops packets where they arrive. A firewall of the sender would report the drop to the
// sender's TCP, which then waits instead of sending again. Then other timers run, and
// tcp_user_timeout has another meaning.
func (p *Pair) drop(dir Direction) error {
	if dir&Up != 0 {
		if err := inputRule(p.ServerNS, "-A"); err != nil {
			return err
		}
	}
	if dir&Down != 0 {
		return inputRule(p.ClientNS, "-A")
	}
	return nil
}

func (p *Pair) heal() error {
	for _, ns := range []string{p.ServerNS, p.ClientNS} {
		if err := run("ip", "netns", "exec", ns, "iptables", "-w", "-F", "INPUT"); err != nil {
			return err
		}
	}
	return nil
}

func inputRule(ns, action string) error {
	return run("ip", "netns", "exec", ns, "iptables", "-w", action, "INPUT", "-i", device, "-j", "DROP")
}

func (p *Pair) check(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Errorf("netns: %v", err) // not Fatal: any goroutine may drop and heal
	}
}

// Command is exec.Command inside ns, which is ServerNS or ClientNS. The process is the command
// itself, so it can receive signals.
func (p *Pair) Command(ns, name string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", ns, name}, args...)...)
}

// In runs f on a goroutine of its own inside ns, which is ServerNS or ClientNS. Sockets that f
// makes, to listen or to dial, belong to ns until they are closed. Goroutines that f starts run
// outside.
func (p *Pair) In(ns string, f func() error) error {
	err := errors.New("netns: the function did not return")
	done := make(chan struct{})
	go func() { // its thread may end in ns, and is then not reused
		defer close(done)
		err = inside(ns, f)
	}()
	<-done
	return err
}

// DialContext dials from the client's namespace. The address is an IP and a port, because the
// namespace has no name server.
func (p *Pair) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("netns: dial: %w", err)
	}
	var conn net.Conn
	err := p.In(p.ClientNS, func() (err error) {
		var d net.Dialer
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Dial is DialContext without a context.
func (p *Pair) Dial(network, address string) (net.Conn, error) {
	return p.DialContext(context.Background(), network, address)
}

// DialTimeout is DialContext with a time limit.
func (p *Pair) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return p.DialContext(ctx, network, address)
}

func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
