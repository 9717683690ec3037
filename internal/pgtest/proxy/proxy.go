// Package proxy is a TCP proxy for tests, in front of a PostgreSQL server. It reads the wire
// protocol (version 3, without encryption). So it can count round trips exactly, and stop
// forwarding at a chosen message, as a link that drops packets does.
package proxy

import (
	"context"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// A Direction is a direction through the proxy, or both.
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

// A Proxy forwards connections to one server. Any goroutine may call its methods.
type Proxy struct {
	t        testing.TB
	listener net.Listener
	running  sync.WaitGroup // the accept loop and every link

	mu         sync.Mutex
	serverAddr string
	closed     bool
	links      map[*link]struct{}
	frozen     map[Direction]chan struct{} // Up, Down: closed by Thaw
	trap       *trap
	delay      time.Duration
	stats      Stats
}

// New starts a proxy on a free port of 127.0.0.1, for the server at serverAddr, a host:port. It is
// closed when the test ends.
func New(t testing.TB, serverAddr string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	p := &Proxy{
		t:          t,
		serverAddr: serverAddr,
		listener:   listener,
		links:      make(map[*link]struct{}),
		frozen:     make(map[Direction]chan struct{}),
	}
	p.running.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

// Addr returns the host:port for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// URL returns serverURL, a postgres:// URL, with the proxy's address instead of the server's, even
// if that is a socket folder in a parameter. It turns TLS off, because the proxy must read what it
// forwards.
func (p *Proxy) URL(serverURL string) string {
	p.t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil || u.Scheme == "" {
		p.t.Fatalf("proxy: %q is not a postgres:// URL (%v)", serverURL, err)
	}
	u.Host = p.Addr()
	q := u.Query()
	for _, name := range []string{"host", "hostaddr", "port"} {
		q.Del(name)
	}
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	return u.String()
}

// Redirect has new connections lead to the server at serverAddr. Those that are open stay.
func (p *Proxy) Redirect(serverAddr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serverAddr = serverAddr
}

// Delay makes every round trip from now on take d longer.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// CutAll resets every connection on both sides, frozen or not. It does not affect new connections.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	p.mu.Unlock()
	for _, l := range links {
		l.cut()
	}
}

// Close stops listening and resets every connection.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.listener.Close()
	p.CutAll()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		l := &link{p: p, client: conn.(*net.TCPConn)}
		l.ctx, l.cancel = context.WithCancel(context.Background())
		if p.add(l) {
			p.running.Go(l.run)
		} else {
			l.cut()
		}
	}
}

// add adds a link. It returns false if the proxy is closed: Close has then cut all links.
func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}
