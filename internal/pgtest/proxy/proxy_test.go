package proxy

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestURL(t *testing.T) {
	p, _ := behind(t)
	for in, want := range map[string]string{
		"postgres://postgres:secret@127.0.0.1:5432/app?application_name=x": "postgres://postgres:secret@ADDR/app?application_name=x&sslmode=disable",
		"postgresql://u@/app?host=/tmp/socket&port=5433&sslmode=require":   "postgresql://u@ADDR/app?sslmode=disable",
		"postgres://": "postgres://ADDR?sslmode=disable",
	} {
		want = strings.ReplaceAll(want, "ADDR", p.Addr())
		if got := p.URL(in); got != want {
			t.Errorf("URL(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestEncryptionIsRefused(t *testing.T) {
	p, listener := behind(t)
	w := &wire{t: t, client: dial(t, p)}
	for range 2 { // GSS first, then TLS
		send(t, w.client, sslRequest())
		receive(t, w.client, []byte("N"))
	}
	send(t, w.client, startup())
	w.server = accept(t, listener)
	receive(t, w.server, startup())
	w.down(authOK(), ready())
	if got := p.Stats().RoundTrips; got != 3 {
		t.Errorf("%d round trips, want 3", got)
	}
}

func TestCancelRequest(t *testing.T) {
	p, listener := behind(t)
	w := &wire{t: t, client: dial(t, p)}
	send(t, w.client, cancelRequest())
	w.server = accept(t, listener)
	receive(t, w.server, cancelRequest())
	w.server.Close()
	if err := ended(t, w.client); err != io.EOF {
		t.Errorf("the client's end: %v", err)
	}
	s := p.Stats()
	if s.CancelRequests != 1 || s.Connections != 0 || s.RoundTrips != 0 {
		t.Errorf("%+v, want one cancel request and nothing else", s)
	}
}

func TestMessageInSmallPieces(t *testing.T) {
	p, listener := behind(t)
	w := session(t, p, listener)
	w.client.SetNoDelay(true)
	m := query("SELECT 1")
	for i := range m {
		send(t, w.client, m[i:i+1])
	}
	receive(t, w.server, m)
}

func TestLargeMessages(t *testing.T) {
	p, listener := behind(t)
	w := session(t, p, listener)
	large := query(strings.Repeat("x", 1<<20))
	go w.client.Write(append(append(query("SELECT 1"), large...), query("SELECT 2")...))
	receive(t, w.server, query("SELECT 1"), large, query("SELECT 2"))
}

func TestServerDiesInTheMiddleOfAMessage(t *testing.T) {
	p, listener := behind(t)
	w := session(t, p, listener)
	send(t, w.server, ready(), complete("SELECT 1")[:7])
	w.server.Close()
	receive(t, w.client, ready(), complete("SELECT 1")[:7])
	if err := ended(t, w.client); err != io.EOF {
		t.Errorf("the client's end: %v", err)
	}
}

func TestResetIsHandedOn(t *testing.T) {
	p, listener := behind(t)
	w := session(t, p, listener)
	reset(w.client)
	if err := ended(t, w.server); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server's end: %v, want a reset", err)
	}
	w = session(t, p, listener)
	reset(w.server)
	if err := ended(t, w.client); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client's end: %v, want a reset", err)
	}
}

func TestUnreachableServer(t *testing.T) {
	p, listener := behind(t)
	listener.Close()
	client := dial(t, p)
	send(t, client, startup())
	if err := ended(t, client); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client's end: %v, want a reset", err)
	}
}

func TestOtherProtocol(t *testing.T) {
	p, _ := behind(t)
	client := dial(t, p)
	send(t, client, []byte("GET / HTTP/1.1\r\n\r\n"))
	if err := ended(t, client); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client's end: %v, want a reset", err)
	}
}

func TestCutAll(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		p, listener := behind(t)
		w := session(t, p, listener)
		if frozen {
			p.Freeze(Both)
			send(t, w.client, query("SELECT 1"))
		}
		p.CutAll()
		if err := ended(t, w.client); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client's end: %v, want a reset", err)
		}
		if err := ended(t, w.server); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the server's end: %v, want a reset", err)
		}
		p.Thaw()
		session(t, p, listener).up(query("SELECT 2"))
	}
}

func TestClose(t *testing.T) {
	p, listener := behind(t)
	w := session(t, p, listener)
	p.Close()
	if err := ended(t, w.client); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client's end: %v, want a reset", err)
	}
	if conn, err := net.Dial("tcp", p.Addr()); err == nil {
		conn.Close()
		t.Error("a closed proxy accepts connections")
	}
	p.Close()
}

func TestDelay(t *testing.T) {
	const d = 50 * time.Millisecond
	p, listener := behind(t)
	w := session(t, p, listener)
	p.Delay(d)
	start := time.Now()
	for range 2 {
		w.up(query("SELECT 1"))
		w.down(complete("SELECT 1"))
		w.down(ready())
	}
	if took := time.Since(start); took < 2*d {
		t.Errorf("two round trips took %v, want %v more than nothing", took, 2*d)
	}
	p.Delay(time.Hour)
	send(t, w.client, query("SELECT 2"))
	silent(t, w.server)
	p.CutAll()
	ended(t, w.client)
}
