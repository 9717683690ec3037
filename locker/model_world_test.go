package locker_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/dbconn"
)

// The world is other processes, and faults.
func (m *machine) world(list []step, faults bool) {
	for _, s := range list {
		time.Sleep(m.rest(s.pause))
		d := m.rest(s.arg)
		switch n := s.what % 8; {
		case n < 3:
			m.all.Go(func() { m.others(s, d, false) })
		case n < 5 || !faults:
			m.all.Go(func() { m.others(s, d, true) })
		case n == 5:
			m.kill(s)
		case n == 6 && s.arg&0x40 != 0:
			m.silence(s, m.rest(s.arg))
		case n == 6:
			m.refuse(s, d)
		case s.arg&0x60 == 0:
			m.all.Go(func() { m.shutdown(s, d) })
		default:
			m.kill(s)
		}
	}
}

// others is another process, which has a key for some time, after a wait if it is to wait.
func (m *machine) others(s step, d time.Duration, waits bool) {
	key, shared := m.key(s.keys).String(), m.mode(s.mode) == advisory.Shared
	c := &fakeConn{f: m.f, process: 7}
	var ok bool
	m.f.set(func() { ok = c.take(key, shared) })
	if !ok && waits {
		var w *fakeWait
		m.f.set(func() { w = c.queue(key, shared) })
		for end := time.After(d); !ok && end != nil; {
			var freed chan struct{}
			m.f.set(func() { freed = m.f.freed; ok = w.granted })
			if !ok {
				select {
				case <-freed:
				case <-end:
					end = nil
				}
			}
		}
		m.f.set(func() { w.leave(key); ok = w.granted })
	}
	if ok {
		time.Sleep(d)
		m.f.set(func() { c.giveBack(key, shared) })
	}
}

// kill ends a session of a Locker.
func (m *machine) kill(s step) {
	m.b.do(func() {
		var open []*fakeConn
		for _, c := range m.f.conns {
			if c.closedAt.IsZero() {
				open = append(open, c)
			}
		}
		if len(open) == 0 {
			return
		}
		c := open[int(s.keys)%len(open)]
		m.b.log("pid %d of process %d ends", c.pid, c.process)
		m.b.kills(c)
		c.end()
		m.all.Go(func() {
			time.Sleep(noticed + time.Millisecond)
			m.b.do(func() {
				for key := range m.b.holds {
					m.b.checkHeld(key)
				}
			})
		})
	})
}

// cutOff has no commit confirmed for some time.
func (m *machine) cutOff(d time.Duration) {
	m.b.do(func() {
		m.b.log("no standby for %v", d)
		m.b.faults = append(m.b.faults, fault{from: m.b.at(), to: m.b.at() + d, effect: 15 * time.Second, silent: true})
	})
	m.f.cutOff()
	time.Sleep(d)
	m.b.do(func() { m.b.log("a standby is back") })
	m.f.heal()
}

// silence has the server answer nothing for some time. If its host is gone for those who asked, it
// lets go of their locks when tcp_user_timeout is over.
func (m *machine) silence(s step, d time.Duration) {
	if s.mode&3 == 0 {
		d += 10 * time.Second
	}
	if m.standby && s.mode&4 == 0 {
		m.cutOff(d)
		return
	}
	var n int
	var gone *time.Timer
	m.b.do(func() {
		n = len(m.b.faults)
		m.b.log("silent for %v", d)
		m.b.faults = append(m.b.faults, fault{from: m.b.at(), to: m.b.at() + d, effect: 15 * time.Second, silent: true})
		m.f.mute = make(chan struct{})
		if userTimeout, err := strconv.Atoi(m.f.settings["tcp_user_timeout"]); err == nil && s.keys&1 != 0 {
			conns := slices.Clone(m.f.conns)
			gone = time.AfterFunc(time.Duration(userTimeout)*time.Millisecond, func() {
				m.b.do(func() {
					m.b.log("the server lets go")
					for _, c := range conns {
						c.end()
					}
				})
			})
		}
	})
	time.Sleep(d)
	if gone != nil {
		gone.Stop()
	}
	m.b.do(func() {
		m.b.log("speaks again")
		m.b.faults[n].to = m.b.at()
		m.f.speak()
	})
}

// refuse lets nobody connect for some time. Mostly the error is one after which calls go on waiting.
func (m *machine) refuse(s step, d time.Duration) {
	refused := []error{errRefused, stateError("57P03"), stateError("53300"), errRefused, stateError("28P01"), errors.New("read only connection")}[int(s.mode>>3)%6]
	m.b.do(func() {
		m.b.log("refuses for %v: %v", d, refused)
		m.b.faults = append(m.b.faults, fault{from: m.b.at(), to: m.b.at() + d, effect: 3 * time.Second, lasting: dbconn.FaultOf(refused) != dbconn.Passing})
		m.f.refused = refused
	})
	time.Sleep(d)
	m.f.set(func() { m.f.refused = nil })
}

// shutdown ends a Locker.
func (m *machine) shutdown(s step, d time.Duration) {
	process := int(s.keys) % len(m.lockers)
	m.b.do(func() {
		m.b.process[process].closing = true
		m.b.log("%d is shut down", process)
	})
	if s.mode&1 == 0 {
		m.lockers[process].Close()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	m.lockers[process].Shutdown(ctx)
}
