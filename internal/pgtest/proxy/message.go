package proxy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
)

// The Type of messages that have none on the wire: those that begin a
// connection.
const (
	Startup    byte = 0 // StartupMessage
	Cancel     byte = 1 // CancelRequest
	encryption byte = 2 // SSLRequest, GSSENCRequest, and the answer, always N
)

// A Message is a message of the protocol, before it is forwarded.
type Message struct {
	Direction Direction
	Type      byte   // as on the wire ('Q' Query, 'P' Parse, 'Z' ReadyForQuery, …), or Startup or Cancel
	Name      string // the statement of a Parse or Bind
	Text      string // the SQL of a Query or Parse, the tag of a CommandComplete, "SQLSTATE: message" of an error or notice

	raw []byte
}

// newMessage returns the message of raw, whose body follows the length.
func newMessage(dir Direction, typ byte, raw, body []byte) Message {
	m := Message{Direction: dir, Type: typ, raw: raw}
	if dir == Up {
		switch typ {
		case 'Q':
			m.Text, _ = cut(body)
		case 'P':
			m.Name, body = cut(body)
			m.Text, _ = cut(body)
		case 'B':
			_, body = cut(body) // the portal
			m.Name, _ = cut(body)
		}
		return m
	}
	switch typ {
	case 'C':
		m.Text, _ = cut(body)
	case 'E', 'N':
		m.Text = errorText(body)
	}
	return m
}

// cut returns the first zero-terminated string of b, and the rest.
func cut(b []byte) (string, []byte) {
	s, rest, _ := bytes.Cut(b, []byte{0})
	return string(s), rest
}

func errorText(fields []byte) string {
	var code, message, value string
	for len(fields) > 0 && fields[0] != 0 {
		name := fields[0]
		value, fields = cut(fields[1:])
		switch name {
		case 'C':
			code = value
		case 'M':
			message = value
		}
	}
	return code + ": " + message
}

// asksPassword reports whether m is an Authentication message that the client must answer: neither
// AuthenticationOk nor AuthenticationSASLFinal.
func (m Message) asksPassword() bool {
	if m.Type != 'R' || len(m.raw) < 9 {
		return false
	}
	kind := binary.BigEndian.Uint32(m.raw[5:])
	return kind != 0 && kind != 12
}

// A reader splits the bytes of a connection into messages.
type reader struct {
	conn     net.Conn
	dir      Direction
	starting bool // no StartupMessage yet: messages have no type byte
	buf      []byte
}

// next waits for a message and returns all that have arrived with it. So messages that a client
// sends together stay together. At the end of the connection buf is the rest.
func (r *reader) next() ([]Message, error) {
	for {
		var msgs []Message
		for {
			m, ok, err := r.take()
			if err != nil && len(msgs) == 0 {
				return nil, err
			}
			if !ok {
				break
			}
			msgs = append(msgs, m)
		}
		if len(msgs) > 0 {
			return msgs, nil
		}
		r.buf = slices.Grow(r.buf, 16<<10)
		n, err := r.conn.Read(r.buf[len(r.buf):cap(r.buf)])
		r.buf = r.buf[:len(r.buf)+n]
		if err != nil && n == 0 {
			return nil, err
		}
	}
}

// take takes a message from buf, if there is a complete one.
func (r *reader) take() (m Message, ok bool, err error) {
	head, limit := 1, 1<<30 // the type byte; as long as the server allows
	if r.starting {
		head, limit = 0, 10_000
	}
	if len(r.buf) < head+4 {
		return m, false, nil
	}
	length := int(binary.BigEndian.Uint32(r.buf[head:]))
	if length < 4 || length > limit || r.starting && length < 8 {
		return m, false, fmt.Errorf("not PostgreSQL's protocol in clear, %v: % x", r.dir, r.buf[:head+4])
	}
	if len(r.buf) < head+length {
		return m, false, nil
	}
	raw := r.buf[: head+length : head+length]
	r.buf = r.buf[head+length:] // appending to it never touches raw
	typ := raw[0]
	if r.starting {
		typ = r.startType(raw)
	}
	return newMessage(r.dir, typ, raw, raw[head+4:]), true, nil
}

func (r *reader) startType(raw []byte) byte {
	const cancelRequest, sslRequest, gssencRequest = 80877102, 80877103, 80877104
	switch binary.BigEndian.Uint32(raw[4:]) {
	case sslRequest, gssencRequest:
		return encryption // another message without a type follows
	case cancelRequest:
		r.starting = false
		return Cancel
	}
	r.starting = false
	return Startup
}
