package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

const (
	soon  = 10 * time.Second       // what is to happen happens within
	never = 100 * time.Millisecond // what is not to happen has not within
)

// A wire is a connection through a proxy, of which the test holds both ends.
type wire struct {
	t              testing.TB
	client, server *net.TCPConn
}

// behind starts a proxy for a server of which the test is the other end.
func behind(t testing.TB) (*Proxy, *net.TCPListener) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return New(t, listener.Addr().String()), listener.(*net.TCPListener)
}

func dial(t testing.TB, p *Proxy) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn)
}

func accept(t testing.TB, listener *net.TCPListener) *net.TCPConn {
	t.Helper()
	listener.SetDeadline(time.Now().Add(soon))
	conn, err := listener.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// session is a wire on which the client has logged in.
func session(t testing.TB, p *Proxy, listener *net.TCPListener) *wire {
	t.Helper()
	w := &wire{t: t, client: dial(t, p)}
	send(t, w.client, startup())
	w.server = accept(t, listener)
	receive(t, w.server, startup())
	w.down(authOK(), ready())
	return w
}

// up sends msgs from the client, at once, and waits until the server has them.
func (w *wire) up(msgs ...[]byte) {
	w.t.Helper()
	send(w.t, w.client, msgs...)
	receive(w.t, w.server, msgs...)
}

// down is up from the server to the client.
func (w *wire) down(msgs ...[]byte) {
	w.t.Helper()
	send(w.t, w.server, msgs...)
	receive(w.t, w.client, msgs...)
}

func send(t testing.TB, conn net.Conn, msgs ...[]byte) {
	t.Helper()
	if _, err := conn.Write(bytes.Join(msgs, nil)); err != nil {
		t.Fatal(err)
	}
}

func receive(t testing.TB, conn net.Conn, msgs ...[]byte) {
	t.Helper()
	want := bytes.Join(msgs, nil)
	got := make([]byte, len(want))
	conn.SetReadDeadline(time.Now().Add(soon))
	if n, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("received %q (%v), want %q", got[:n], err, want)
	}
}

// silent fails the test if anything arrives, the end included.
func silent(t testing.TB, conn net.Conn) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(never))
	var b [64]byte
	if n, err := conn.Read(b[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("received %q (%v), want nothing", b[:n], err)
	}
}

// ended is the error that ends conn, all data before it discarded.
func ended(t testing.TB, conn net.Conn) error {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(soon))
	_, err := io.Copy(io.Discard, conn)
	if err == nil {
		return io.EOF
	}
	return err
}

func closed(t testing.TB, hit <-chan struct{}) {
	t.Helper()
	select {
	case <-hit:
	case <-time.After(soon):
		t.Fatal("the trap did not strike")
	}
}

func msg(typ byte, body string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{typ}, uint32(4+len(body)))
	return append(b, body...)
}

func begin(code uint32, body string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	b = binary.BigEndian.AppendUint32(b, code)
	return append(b, body...)
}

func startup() []byte             { return begin(196608, "user\x00postgres\x00\x00") }
func sslRequest() []byte          { return begin(80877103, "") }
func cancelRequest() []byte       { return begin(80877102, "pid.key.") }
func query(sql string) []byte     { return msg('Q', sql+"\x00") }
func parse(name, q string) []byte { return msg('P', name+"\x00"+q+"\x00\x00\x00") }
func describe() []byte            { return msg('D', "S\x00") }
func bind(name string) []byte     { return msg('B', "\x00"+name+"\x00\x00\x00\x00\x00\x00\x00") }
func execute() []byte             { return msg('E', "\x00\x00\x00\x00\x00") }
func syncMsg() []byte             { return msg('S', "") }
func flush() []byte               { return msg('H', "") }
func terminate() []byte           { return msg('X', "") }
func password(s string) []byte    { return msg('p', s+"\x00") }
func copyData(s string) []byte    { return msg('d', s) }
func copyDone() []byte            { return msg('c', "") }

func auth(kind byte, rest string) []byte { return msg('R', "\x00\x00\x00"+string(rune(kind))+rest) }
func authOK() []byte                     { return auth(0, "") }
func ready() []byte                      { return msg('Z', "I") }
func parsed() []byte                     { return msg('1', "") }
func bound() []byte                      { return msg('2', "") }
func complete(tag string) []byte         { return msg('C', tag+"\x00") }
func copyIn() []byte                     { return msg('G', "\x00\x00\x00") }
func notification() []byte               { return msg('A', "\x00\x00\x00\x01channel\x00\x00") }
func failure(code, text string) []byte   { return msg('E', "SERROR\x00C"+code+"\x00M"+text+"\x00\x00") }
