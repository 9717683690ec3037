package proxy

import (
	"fmt"
	"io"
	"net"
	"reflect"
	"sync"
	"testing"
)

func TestRoundTrips(t *testing.T) {
	for _, c := range []struct {
		name string
		want int
		talk func(w *wire)
	}{
		{"silence", 0, func(w *wire) {}},
		{"simple query", 1, func(w *wire) {
			w.up(query("SELECT 1"))
			w.down(complete("SELECT 1"), ready())
		}},
		{"simple query answered piece by piece", 1, func(w *wire) {
			w.up(query("SELECT 1"))
			w.down(complete("SELECT 1"))
			w.down(ready())
		}},
		{"two simple queries", 2, func(w *wire) {
			for range 2 {
				w.up(query("SELECT 1"))
				w.down(complete("SELECT 1"), ready())
			}
		}},
		{"prepare, then execute", 2, func(w *wire) {
			w.up(parse("", "SELECT $1"), describe(), syncMsg())
			w.down(parsed(), ready())
			w.up(bind(""), execute(), syncMsg())
			w.down(bound(), complete("SELECT 1"), ready())
		}},
		{"prepare and execute at once", 1, func(w *wire) {
			w.up(parse("", "SELECT $1"), bind(""), execute(), syncMsg())
			w.down(parsed(), bound(), complete("SELECT 1"), ready())
		}},
		{"a message in two pieces", 1, func(w *wire) {
			w.up(parse("", "SELECT $1"))
			w.up(bind(""), execute())
			w.up(syncMsg())
			w.down(parsed(), bound(), complete("SELECT 1"), ready())
		}},
		{"pipeline sent at once, answered in turn", 1, func(w *wire) {
			w.up(query("SELECT 1"), query("SELECT 2"))
			w.down(complete("SELECT 1"), ready())
			w.down(complete("SELECT 1"), ready())
		}},
		{"pipeline whose end is sent while its first part is answered", 1, func(w *wire) {
			w.up(parse("", "SELECT 1"), syncMsg())
			w.up(bind(""), execute(), syncMsg())
			w.down(parsed(), ready())
			w.up(bind(""), execute(), syncMsg())
			w.down(bound(), complete("SELECT 1"), ready())
			w.down(bound(), complete("SELECT 1"), ready())
		}},
		{"flush, answer, sync", 2, func(w *wire) {
			w.up(parse("", "SELECT $1"), describe(), flush())
			w.down(parsed())
			w.up(bind(""), execute(), syncMsg())
			w.down(bound(), complete("SELECT 1"), ready())
		}},
		{"flush and sync in a pipeline", 1, func(w *wire) {
			w.up(parse("", "SELECT $1"), describe(), flush())
			w.up(bind(""), execute(), syncMsg())
			w.down(parsed(), bound(), complete("SELECT 1"), ready())
		}},
		{"copy in", 2, func(w *wire) {
			w.up(query("COPY t FROM STDIN"))
			w.down(copyIn())
			w.up(copyData("1\n"))
			w.up(copyData("2\n"), copyDone())
			w.down(complete("COPY 2"), ready())
		}},
		{"error", 1, func(w *wire) {
			w.up(query("SELEC"))
			w.down(failure("42601", "syntax error"), ready())
		}},
		{"error in the middle of a pipeline", 2, func(w *wire) {
			w.up(parse("", "SELEC"), bind(""), execute(), syncMsg())
			w.down(failure("42601", "syntax error"), ready())
			w.up(query("SELECT 1"))
			w.down(complete("SELECT 1"), ready())
		}},
		{"notification while idle", 1, func(w *wire) {
			w.down(notification())
			w.up(query("SELECT 1"))
			w.down(complete("SELECT 1"), ready())
			w.down(notification())
		}},
		{"notification before the answer", 1, func(w *wire) {
			w.up(query("SELECT 1"))
			w.down(notification())
			w.down(complete("SELECT 1"), ready())
		}},
		{"terminate", 0, func(w *wire) {
			w.up(terminate())
			w.server.Close()
			ended(w.t, w.client)
		}},
		{"no answer", 0, func(w *wire) {
			w.up(query("SELECT 1"))
			w.server.Close()
			ended(w.t, w.client)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, listener := behind(t)
			w := session(t, p, listener)
			p.Reset()
			c.talk(w)
			if got := p.Stats().RoundTrips; got != c.want {
				t.Errorf("%d round trips, want %d", got, c.want)
			}
		})
	}
}

func TestRoundTripsOfALogin(t *testing.T) {
	for _, c := range []struct {
		name string
		want int
		talk func(w *wire)
	}{
		{"trust", 1, func(w *wire) {}},
		{"password", 2, func(w *wire) {
			w.down(auth(3, ""))
			w.up(password("secret"))
		}},
		{"scram", 3, func(w *wire) {
			w.down(auth(10, "SCRAM-SHA-256\x00\x00"))
			w.up(password("first"))
			w.down(auth(11, "challenge"))
			w.up(password("final"))
			w.down(auth(12, "signature"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, listener := behind(t)
			w := &wire{t: t, client: dial(t, p)}
			send(t, w.client, startup())
			w.server = accept(t, listener)
			receive(t, w.server, startup())
			c.talk(w)
			w.down(authOK(), ready())
			if got := p.Stats().RoundTrips; got != c.want {
				t.Errorf("%d round trips, want %d", got, c.want)
			}
		})
	}
}

func TestStats(t *testing.T) {
	p, listener := behind(t)
	w := session(t, p, listener)
	p.Reset()

	up := [][]byte{
		parse("stmt1", "SELECT $1"), describe(), syncMsg(),
		parse("", "SELECT 2"), bind(""), execute(), bind("stmt1"), execute(), syncMsg(),
		query("SELECT 'first'"), query("SELECT 'second'"),
	}
	w.up(up...)
	w.down(ready(), ready(), ready(), ready())
	session(t, p, listener)

	want := Stats{
		RoundTrips:  2,
		Queries:     []string{"SELECT 'first'", "SELECT 'second'"},
		Parses:      2,
		Binds:       2,
		Executes:    2,
		Prepared:    1,
		Connections: 1,
		BytesUp:     int64(len(startup())),
		BytesDown:   int64(len(authOK()) + 5*len(ready())),
	}
	for _, m := range up {
		want.BytesUp += int64(len(m))
	}
	if got := p.Stats(); !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	p.Reset()
	if got := p.Stats(); !reflect.DeepEqual(got, Stats{}) {
		t.Errorf("after Reset: %+v", got)
	}
}

func TestRoundTripsOfManyClients(t *testing.T) {
	const clients, queries = 16, 50
	p, listener := behind(t)
	go func() {
		for {
			conn, err := listener.AcceptTCP()
			if err != nil {
				return
			}
			go answer(conn)
		}
	}()
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			conn, err := net.Dial("tcp", p.Addr())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			reply := make([]byte, len(ready()))
			for i := range 1 + queries {
				m := query(fmt.Sprintf("SELECT %d", i))
				if i == 0 {
					m = startup()
				}
				if _, err := conn.Write(m); err != nil {
					t.Error(err)
					return
				}
				if _, err := io.ReadFull(conn, reply); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	thawing := make(chan struct{})
	go func() { // freezing holds messages back, and neither loses nor doubles them
		defer close(thawing)
		for range 50 {
			for _, dir := range []Direction{Up, Down, Both} {
				p.Freeze(dir)
				p.Thaw()
			}
		}
	}()
	running.Wait()
	<-thawing
	s := p.Stats()
	if want := clients * (1 + queries); s.RoundTrips != want {
		t.Errorf("%d round trips, want %d", s.RoundTrips, want)
	}
	if want := clients * queries; len(s.Queries) != want || s.Connections != clients {
		t.Errorf("%d queries on %d connections, want %d on %d", len(s.Queries), s.Connections, want, clients)
	}
}

// answer is a server that is always ready.
func answer(conn *net.TCPConn) {
	defer conn.Close()
	r := &reader{conn: conn, dir: Up, starting: true}
	for {
		msgs, err := r.next()
		if err != nil {
			return
		}
		for range msgs {
			conn.Write(ready())
		}
	}
}
