package harness

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/netns"
)

// A Site is a server, and machines that reach it over a network.
type Site struct {
	*testing.T
	Pair   *netns.Pair
	Server *pgtest.Server
	Lag    *Lag
	Watch  *Pool // beside the server
}

func (s *Site) Command(ns, name string, args ...string) {
	s.Helper()
	if out, err := s.Pair.Command(ns, name, args...).CombinedOutput(); err != nil {
		s.Errorf("%s %q: %v: %s", name, args, err, out)
	}
}

// A Machine is one of many that have the network in common: by an address of its own it
// can be cut off alone. It dials as a pair does.
type Machine struct {
	*Site
	Ip string
}

func (s *Site) Machine(n int) *Machine {
	m := &Machine{s, fmt.Sprintf("10.231.1.%d", n)}
	s.Command(s.Pair.ClientNS, "ip", "address", "add", m.Ip+"/32", "dev", "lo")
	return m
}

func (m *Machine) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = m.Pair.In(m.Pair.ClientNS, func() (err error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(m.Ip)}}
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

func (m *Machine) Dial(network, address string) (net.Conn, error) {
	return m.DialContext(context.Background(), network, address)
}

func (m *Machine) DialTimeout(network, address string, d time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return m.DialContext(ctx, network, address)
}

// Cut has all packets lost where they arrive, as on a line that is cut.
func (m *Machine) Cut(dir netns.Direction)  { m.rule("-A", dir) }
func (m *Machine) Heal(dir netns.Direction) { m.rule("-D", dir) }

func (m *Machine) rule(action string, dir netns.Direction) {
	m.Helper()
	if dir&netns.Up != 0 {
		m.Command(m.Pair.ServerNS, "iptables", "-w", action, "INPUT", "-s", m.Ip, "-j", "DROP")
	}
	if dir&netns.Down != 0 {
		m.Command(m.Pair.ClientNS, "iptables", "-w", action, "INPUT", "-d", m.Ip, "-j", "DROP")
	}
}
