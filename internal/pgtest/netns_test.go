//go:build linux

package pgtest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestServerInANetworkNamespace(t *testing.T) {
	Slow(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	name := fmt.Sprintf("pgtest-%d", os.Getpid())
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Skipf("ip netns add: %v: %s", err, out)
	}
	t.Cleanup(func() { exec.Command("ip", "netns", "delete", name).Run() })
	if out, err := exec.Command("ip", "-n", name, "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	s := Options{Netns: name}.NewServer(t)
	if err := do(s.Crash, s.Start); err != nil {
		t.Fatal(err)
	}
	if got := ask[string](t, s.SocketURL(), "SELECT current_user"); got != "postgres" {
		t.Errorf("over the socket I am %s", got)
	}
	if c, err := net.DialTimeout("tcp", s.Addr(), time.Second); err == nil {
		c.Close()
		t.Errorf("%s leads to the server from here, too", s.Addr())
	}
	inside := exec.Command("ip", "netns", "exec", name, os.Args[0])
	inside.Env = append(os.Environ(), dialVar+"="+s.URL())
	if out, err := inside.CombinedOutput(); err != nil {
		t.Errorf("from inside: %v\n%s", err, out)
	}
}

// dialVar makes this test binary a client of the server that it names.
const dialVar = "PGTEST_DIAL"

func init() {
	raw := os.Getenv(dialVar)
	if raw == "" {
		return
	}
	u, err := url.Parse(raw)
	if err == nil {
		_, err = serverVersion(context.Background(), u)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func TestURLFollowsListenAddresses(t *testing.T) {
	Slow(t)
	s := NewServer(t, "listen_addresses=127.0.0.2, localhost")
	if host, _, _ := net.SplitHostPort(s.Addr()); host != "127.0.0.2" {
		t.Errorf("it is at %s", s.Addr())
	}
	ask[int](t, s.URL(), "SELECT 1")

	s = NewServer(t, "listen_addresses=")
	if s.Addr() != "" || s.URL() != s.SocketURL() {
		t.Errorf("it is at %s and %s", s.Addr(), s.URL())
	}
}
