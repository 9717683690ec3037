package proxy

import (
	"io"
	"strings"
	"testing"
)

func TestFreeze(t *testing.T) {
	for _, c := range []struct {
		dir      Direction
		up, down bool // still forwarded
	}{
		{Up, false, true},
		{Down, true, false},
		{Both, false, false},
	} {
		t.Run(c.dir.String(), func(t *testing.T) {
			p, listener := behind(t)
			w := session(t, p, listener)
			p.Reset()
			p.Freeze(c.dir)
			send(t, w.client, query("SELECT 1"), query("SELECT 2"))
			send(t, w.server, notification())
			check := func(open bool, at *wire, up bool) {
				t.Helper()
				switch {
				case open && up:
					receive(t, at.server, query("SELECT 1"), query("SELECT 2"))
				case open:
					receive(t, at.client, notification())
				case up:
					silent(t, at.server)
				default:
					silent(t, at.client)
				}
			}
			check(c.up, w, true)
			check(c.down, w, false)
			if got, open := len(p.Stats().Queries) == 2, c.up; got != open {
				t.Errorf("queries counted: %v, forwarded: %v", got, open)
			}

			p.Thaw()
			if !c.up {
				check(true, w, true)
			}
			if !c.down {
				check(true, w, false)
			}
			w.up(query("SELECT 3"))
			w.down(ready())
		})
	}
}

func TestFreezeHoldsBackTheEndOfAConnection(t *testing.T) {
	p, listener := behind(t)
	w := session(t, p, listener)
	p.Freeze(Both)
	send(t, w.client, terminate())
	w.client.Close()
	silent(t, w.server)
	p.Thaw()
	receive(t, w.server, terminate())
	if err := ended(t, w.server); err != io.EOF {
		t.Errorf("the server's end: %v", err)
	}
}

func TestFreezeHoldsBackAReset(t *testing.T) {
	p, listener := behind(t)
	w := session(t, p, listener)
	p.Freeze(Both)
	reset(w.server)
	silent(t, w.client)
	p.Thaw()
	if err := ended(t, w.client); err == io.EOF {
		t.Error("the client saw an orderly end, want a reset")
	}
}

func TestConnectWhileFrozen(t *testing.T) {
	p, listener := behind(t)
	p.Freeze(Both)
	w := &wire{t: t, client: dial(t, p)}
	send(t, w.client, startup())
	silent(t, w.client)
	if s := p.Stats(); s.Connections != 0 {
		t.Errorf("%d connections counted while frozen", s.Connections)
	}
	p.Thaw()
	w.server = accept(t, listener)
	receive(t, w.server, startup())
	w.down(authOK(), ready())
}

func TestFreezeOn(t *testing.T) {
	p, listener := behind(t)
	w := session(t, p, listener)
	p.Reset()
	frozen := p.FreezeOn(func(m Message) bool {
		return m.Direction == Up && m.Type == 'Q' && strings.Contains(m.Text, "try")
	})
	w.up(query("SELECT 1"))
	w.down(complete("SELECT 1"), ready())
	send(t, w.client, query("SELECT 2"), query("SELECT try"), query("SELECT 3"))
	receive(t, w.server, query("SELECT 2"))
	closed(t, frozen)
	silent(t, w.server)
	send(t, w.server, ready())
	silent(t, w.client)
	if got := p.Stats().Queries; len(got) != 2 {
		t.Errorf("counted %q", got)
	}
	p.Thaw()
	receive(t, w.server, query("SELECT try"), query("SELECT 3"))
	receive(t, w.client, ready())
	w.up(query("SELECT try")) // it strikes once
}

func TestFreezeOnAnAnswer(t *testing.T) {
	p, listener := behind(t)
	w := session(t, p, listener)
	frozen := p.FreezeOn(func(m Message) bool { return m.Type == 'C' && m.Text == "SELECT 1" })
	w.up(query("SELECT try"))
	send(t, w.server, msg('T', "row description"), complete("SELECT 1"), ready())
	receive(t, w.client, msg('T', "row description"))
	closed(t, frozen)
	silent(t, w.client)
	p.Thaw()
	receive(t, w.client, complete("SELECT 1"), ready())
}

func TestFreezeAfter(t *testing.T) {
	p, listener := behind(t)
	w := session(t, p, listener)
	frozen := p.FreezeAfter(func(m Message) bool { return m.Text == "SELECT try" })
	send(t, w.client, query("SELECT try"), query("SELECT 2"))
	receive(t, w.server, query("SELECT try"))
	send(t, w.server, ready())
	closed(t, frozen)
	silent(t, w.client)
	silent(t, w.server)
	p.Thaw()
	receive(t, w.client, ready())
	receive(t, w.server, query("SELECT 2"))
}

func TestFreezeAfterOneWay(t *testing.T) {
	p, listener := behind(t)
	w := session(t, p, listener)
	frozen := p.FreezeAfter(func(m Message) bool { return m.Text == "SELECT try" }, Down)
	w.up(query("SELECT try"))
	closed(t, frozen)
	send(t, w.server, ready())
	w.up(query("SELECT 2"))
	silent(t, w.client)
	p.Thaw()
	receive(t, w.client, ready())
}

func TestThawDisarms(t *testing.T) {
	p, listener := behind(t)
	w := session(t, p, listener)
	frozen := p.FreezeOn(func(Message) bool { return true })
	p.Thaw()
	w.up(query("SELECT 1"))
	w.down(ready())
	select {
	case <-frozen:
		t.Error("it struck")
	default:
	}
}

func TestMatchSeesMessages(t *testing.T) {
	p, listener := behind(t)
	seen := make(chan Message, 100)
	p.FreezeOn(func(m Message) bool { m.raw = nil; seen <- m; return false })
	w := session(t, p, listener)
	w.up(parse("stmt", "SELECT $1"), bind("stmt"), query("SELECT 1"))
	w.down(failure("55P03", "canceling statement due to lock timeout"))
	close(seen)
	for _, want := range []Message{
		{Direction: Up, Type: Startup},
		{Direction: Down, Type: 'R'},
		{Direction: Down, Type: 'Z'},
		{Direction: Up, Type: 'P', Name: "stmt", Text: "SELECT $1"},
		{Direction: Up, Type: 'B', Name: "stmt"},
		{Direction: Up, Type: 'Q', Text: "SELECT 1"},
		{Direction: Down, Type: 'E', Text: "55P03: canceling statement due to lock timeout"},
	} {
		m := <-seen
		if m.Direction != want.Direction || m.Type != want.Type || m.Name != want.Name || m.Text != want.Text {
			t.Errorf("saw %+v, want %+v", m, want)
		}
	}
	p.Thaw()
}
