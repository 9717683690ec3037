package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A link is a client's connection and its connection to the server.
type link struct {
	p      *Proxy
	ctx    context.Context // ends when the link is cut
	cancel context.CancelFunc
	client *net.TCPConn

	// guarded by p.mu
	server *net.TCPConn // nil until the client has sent its first message
	trip   trip
}

// run forwards in both directions until both have ended.
func (l *link) run() {
	defer l.close()
	up := &reader{conn: l.client, dir: Up, starting: true}
	first, err := l.start(up)
	if err != nil {
		l.failed(err)
		return
	}
	server, err := l.dial()
	if err != nil {
		l.failed(err)
		return
	}
	var down sync.WaitGroup
	down.Go(func() { l.pump(&reader{conn: server, dir: Down}, l.client) })
	if l.forward(Up, first, server) {
		l.pump(up, server)
	}
	down.Wait()
}

// start reads the client's first message, and refuses encryption.
func (l *link) start(up *reader) ([]Message, error) {
	for {
		msgs, err := up.next()
		if err != nil || msgs[0].Type != encryption {
			return msgs, err
		}
		no := Message{Direction: Down, Type: encryption, raw: []byte("N")}
		if !l.forward(Up, msgs, io.Discard) || !l.forward(Down, []Message{no}, l.client) {
			return nil, io.EOF
		}
	}
}

func (l *link) dial() (*net.TCPConn, error) {
	if !l.pass(Up) {
		return nil, io.EOF
	}
	l.p.mu.Lock()
	addr := l.p.serverAddr
	l.p.mu.Unlock()
	var d net.Dialer
	conn, err := d.DialContext(l.ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	server := conn.(*net.TCPConn)
	l.p.mu.Lock()
	l.server = server
	l.p.mu.Unlock()
	if l.ctx.Err() != nil { // cut may have looked for server just before
		reset(server)
	}
	return server, nil
}

// pump forwards all messages of from to dst, and then the end of the connection.
func (l *link) pump(from *reader, dst *net.TCPConn) {
	for {
		msgs, err := from.next()
		switch {
		case err == nil:
			if l.forward(from.dir, msgs, dst) {
				continue
			}
			if from.dir == Down && l.pass(Up) {
				l.cut() // the client is gone, and its kernel would say so
			}
		case !l.pass(from.dir):
		case err == io.EOF:
			dst.Write(from.buf) // a peer may die in the middle of a message
			dst.CloseWrite()
		default:
			l.failed(err)
		}
		return
	}
}

// forward sends msgs, waiting while their direction is frozen. It returns false if that failed: the
// link is cut, or dst is gone. The reader of dst detects the latter and forwards it.
func (l *link) forward(dir Direction, msgs []Message, dst io.Writer) bool {
	for len(msgs) > 0 {
		if !l.pass(dir) {
			return false
		}
		n, delay, hit := l.admit(dir, msgs)
		if !l.sleep(delay) {
			return false
		}
		var out []byte
		for _, m := range msgs[:n] {
			out = append(out, m.raw...)
		}
		_, err := dst.Write(out)
		if hit != nil {
			close(hit)
		}
		if err != nil {
			return false
		}
		msgs = msgs[n:]
	}
	return true
}

// pass waits while dir is frozen. It returns false when the link is cut.
func (l *link) pass(dir Direction) bool {
	for l.ctx.Err() == nil {
		thawed := l.p.thawed(dir)
		if thawed == nil {
			return true
		}
		select {
		case <-thawed:
		case <-l.ctx.Done():
		}
	}
	return false
}

// admit counts the first n of msgs, which must be sent after delay. If a trap stopped it there, hit
// must be closed then.
func (l *link) admit(dir Direction, msgs []Message) (n int, delay time.Duration, hit chan struct{}) {
	p := l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range msgs {
		if p.frozen[dir] != nil {
			break
		}
		struck := p.trap != nil && p.trap.match(m)
		if struck {
			hit = p.trap.hit
			p.freeze(p.trap.dir)
			if !p.trap.after && p.frozen[dir] != nil {
				p.trap = nil
				break
			}
			p.trap = nil
		}
		p.stats.add(m)
		if dir == Up && l.trip.up(m) {
			delay = p.delay
		}
		if dir == Down && l.trip.down(m) {
			p.stats.RoundTrips++
		}
		n++
	}
	return n, delay, hit
}

func (l *link) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-l.ctx.Done():
		return false
	}
}

// failed forwards a broken connection to the other side, as a reset.
func (l *link) failed(err error) {
	var network *net.OpError
	if err != io.EOF && !errors.As(err, &network) {
		l.p.t.Logf("proxy: %v", err)
	}
	l.cut()
}

// cut resets both connections.
func (l *link) cut() {
	l.cancel()
	reset(l.client)
	l.p.mu.Lock()
	server := l.server
	l.p.mu.Unlock()
	if server != nil {
		reset(server)
	}
}

// close closes a link after both directions have ended.
func (l *link) close() {
	l.p.remove(l)
	l.cancel()
	l.client.Close()
	l.p.mu.Lock()
	server := l.server
	l.p.mu.Unlock()
	if server != nil {
		server.Close()
	}
}

func reset(conn *net.TCPConn) {
	conn.SetLinger(0)
	conn.Close()
}
