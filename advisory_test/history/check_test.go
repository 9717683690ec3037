package history

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

const ms = Time(time.Millisecond)

// hold is an exclusive one of key 1, from and to in ms.
func hold(process int, from, to Time, change ...func(*Hold)) Hold {
	h := Hold{Process: process, How: "Lock", Key: "1", Session: 100 + process, Opened: 1, Asked: from*ms - ms/2, Got: from * ms, Alive: to * ms}
	for _, c := range change {
		c(&h)
	}
	return h
}

func shared(h *Hold) { h.Shared = true }
func blind(h *Hold)  { h.Blind = true }
func killed(h *Hold) { h.Alive = 0 }

func token(n uint64) func(*Hold)    { return func(h *Hold) { h.Token = n } }
func asked(at Time) func(*Hold)     { return func(h *Hold) { h.Asked = at * ms } }
func opened(at Time) func(*Hold)    { return func(h *Hold) { h.Opened = at * ms } }
func downgrade(at Time) func(*Hold) { return func(h *Hold) { h.Downgrading = at * ms } }
func told(at Time) func(*Hold)      { return func(h *Hold) { h.Told = at * ms } }
func key(k string) func(*Hold)      { return func(h *Hold) { h.Key = k } }

func fault(kind string, process int, sent, over Time, change ...func(*Fault)) Fault {
	f := Fault{Kind: kind, Process: process, Sent: sent * ms, Over: over * ms}
	for _, c := range change {
		c(&f)
	}
	return f
}

func ends(f *Fault) { f.Ends = true }

func of(session int) func(*Fault) { return func(f *Fault) { f.Session = session } }
func due(at Time) func(*Fault)    { return func(f *Fault) { f.Due = at * ms } }

func TestCheck(t *testing.T) {
	terminated := fault("terminate", 1, 15, 17, ends, of(101))
	for _, c := range []struct {
		name   string
		want   string // "": nothing is wrong
		holds  []Hold
		faults []Fault
	}{
		{"nothing", "", nil, nil},
		{"one after the other", "", []Hold{hold(1, 10, 20), hold(2, 20, 30), hold(1, 31, 40)}, nil},
		{"other keys", "", []Hold{hold(1, 10, 20), hold(2, 10, 20, key("2"))}, nil},
		{"readers", "", []Hold{hold(1, 10, 20, shared), hold(2, 12, 30, shared), hold(3, 30, 40)}, nil},
		{"two writers", "two holders", []Hold{hold(1, 10, 20), hold(2, 19, 30)}, nil},
		{"two writers of a process", "two holders", []Hold{hold(1, 10, 20), hold(1, 19, 30)}, nil},
		{"one within another", "two holders", []Hold{hold(1, 10, 50), hold(2, 12, 13), hold(3, 30, 31)}, nil},
		{"a writer among readers", "two holders", []Hold{hold(1, 10, 20, shared), hold(2, 11, 14, shared), hold(3, 15, 16)}, nil},
		{"a reader beside a writer", "two holders", []Hold{hold(1, 10, 20), hold(2, 19, 30, shared)}, nil},
		{"a writer behind many readers", "two holders", []Hold{hold(1, 10, 40, shared), hold(2, 11, 12, shared), hold(3, 30, 31)}, nil},

		{"readers beside what was downgraded", "", []Hold{hold(1, 10, 30, downgrade(20)), hold(2, 20, 25, shared)}, nil},
		{"readers before the downgrade", "two holders", []Hold{hold(1, 10, 30, downgrade(20)), hold(2, 19, 25, shared)}, nil},
		{"a writer beside what was downgraded", "two holders", []Hold{hold(1, 10, 30, downgrade(20)), hold(2, 29, 35)}, nil},

		{"the session ended before", "", []Hold{hold(1, 10, 20), hold(2, 16, 30)}, []Fault{terminated}},
		{"it had not ended yet", "two holders", []Hold{hold(1, 10, 20), hold(2, 14, 30)}, []Fault{terminated}},
		{"another's session ended", "two holders", []Hold{hold(1, 10, 20), hold(2, 16, 30)}, []Fault{fault("terminate", 1, 15, 17, ends, of(999))}},
		{"another process's sessions ended", "two holders", []Hold{hold(1, 10, 20), hold(2, 16, 30)}, []Fault{fault("reset", 3, 15, 17, ends)}},
		{"all sessions ended", "", []Hold{hold(1, 10, 20), hold(2, 16, 30)}, []Fault{fault("crash", 0, 15, 17, ends)}},
		{"a session of after the crash", "two holders", []Hold{hold(1, 500, 900, opened(450)), hold(2, 600, 700, opened(450))}, []Fault{fault("crash", 0, 15, 17, ends)}},
		{"a link that was cut ends nothing", "two holders", []Hold{hold(1, 10, 20), hold(2, 16, 30)}, []Fault{fault("cut", 1, 15, 50)}},
		{"told of the cut, then the next", "", []Hold{hold(1, 10, 20, told(21)), hold(2, 22, 30)}, []Fault{fault("cut", 1, 15, 50)}},
		{"on a connection of one's own nobody is told", "", []Hold{hold(1, 10, 20, blind), hold(2, 16, 30)}, []Fault{fault("cut", 1, 15, 50)}},
		{"a connection of one's own that ended before", "", []Hold{hold(1, 10, 20, blind), hold(2, 16, 30)}, []Fault{terminated}},
		{"another connection of the process ended", "two holders", []Hold{hold(1, 10, 20, blind), hold(2, 16, 30)}, []Fault{fault("terminate", 1, 15, 17, ends, of(999))}},

		{"killed as it held", "", []Hold{hold(1, 10, 0, killed), hold(2, 50, 60)}, []Fault{fault("kill", 1, 50, 51, ends)}},
		{"given to another before the kill", "two holders", []Hold{hold(1, 10, 0, killed), hold(2, 49, 60)}, []Fault{fault("kill", 1, 50, 51, ends)}},

		{"tokens that grow", "", []Hold{hold(1, 10, 20, token(5)), hold(2, 20, 30, token(6)), hold(3, 30, 40), hold(2, 40, 50, token(7))}, nil},
		{"a token twice", "token", []Hold{hold(1, 10, 20, token(5)), hold(2, 20, 30, token(5))}, nil},
		{"a token that is smaller", "token", []Hold{hold(1, 10, 20, token(5)), hold(2, 20, 30), hold(1, 30, 40, token(4))}, nil},
		{"readers at once in any order", "", []Hold{hold(1, 10, 20, shared, token(5)), hold(2, 11, 20, shared, token(4), asked(9))}, nil},
		{"readers at once with one token", "twice", []Hold{hold(1, 10, 20, shared, token(5)), hold(2, 11, 20, shared, token(5), asked(9))}, nil},
		{"readers one after the other", "token", []Hold{hold(1, 10, 20, shared, token(5)), hold(2, 12, 20, shared, token(4))}, nil},
		{"a writer's is smaller than a reader's before", "next holder's token", []Hold{hold(1, 10, 20, shared, token(5)), hold(2, 20, 30, asked(5), token(4))}, nil},
		{"a reader's is smaller than a writer's before", "next holder's token", []Hold{hold(1, 10, 20, token(5)), hold(2, 20, 30, shared, asked(5), token(4))}, nil},
		{"after a crash the same token", "token", []Hold{hold(1, 10, 20, token(5)), hold(2, 60, 70, opened(55), token(5))}, []Fault{fault("crash", 0, 5, 50, ends)}},
	} {
		t.Run(c.name, func(t *testing.T) { is(t, Check(c.holds, c.faults), c.want) })
	}
}

func TestTold(t *testing.T) {
	cut := fault("cut", 1, 15, 100, due(40))
	for _, c := range []struct {
		name   string
		want   string
		losses int
		holds  []Hold
		faults []Fault
	}{
		{"in time", "", 1, []Hold{hold(1, 10, 30, told(31))}, []Fault{cut}},
		{"too late", "not told", 1, []Hold{hold(1, 10, 50, told(51))}, []Fault{cut}},
		{"never", "not told", 0, []Hold{hold(1, 10, 50)}, []Fault{cut}},
		{"released before", "", 0, []Hold{hold(1, 10, 14)}, []Fault{cut}},
		{"of another process", "", 0, []Hold{hold(2, 10, 50)}, []Fault{cut}},
		{"of a session of after", "", 0, []Hold{hold(1, 110, 150, opened(105))}, []Fault{cut}},
		{"killed meanwhile", "", 0, []Hold{hold(1, 10, 0, killed)}, []Fault{cut}},
		{"on a connection of its own", "", 0, []Hold{hold(1, 10, 50, blind)}, []Fault{cut}},
		{"handed over on a session that was gone", "not told", 0, []Hold{hold(1, 20, 50)}, []Fault{fault("terminate", 1, 15, 17, ends, of(101), due(30))}},
		{"of nothing known", "", 1, []Hold{hold(1, 10, 30, told(31))}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			losses, wrong := Told(c.holds, c.faults)
			is(t, wrong, c.want)
			if len(losses) != c.losses {
				t.Errorf("losses %v", losses)
			}
		})
	}
}

func is(t *testing.T, wrong []error, want string) {
	t.Helper()
	if (len(wrong) == 0) != (want == "") {
		t.Errorf("wrong: %v, want %q", wrong, want)
	}
	for _, err := range wrong {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("wrong: %v, want %q", err, want)
		}
	}
}

// Check is as strict as a checker that looks for times at which everything can have
// happened, and no stricter: on random histories, good and bad.
func TestCheckAgainstLinearizability(t *testing.T) {
	const histories = 20000
	bad := 0
	for seed := range uint64(histories) {
		holds := random(rand.New(rand.NewPCG(seed, 1)))
		wrong := Check(holds, nil)
		if len(wrong) > 0 {
			bad++
		}
		if porcupine.CheckOperations(lock, operations(holds)) != (len(wrong) == 0) {
			var text strings.Builder
			for _, h := range holds {
				fmt.Fprintf(&text, "\n%+v", h)
			}
			t.Fatalf("history %d: Check says %v, and the other does not, of%v", seed, wrong, &text)
		}
	}
	t.Logf("%d histories, %d of them bad", histories, bad)
	if bad < histories/10 || bad > histories*9/10 {
		t.Error("the histories are no good")
	}
}

// random makes a history that is good, and then changes a little of it.
func random(r *rand.Rand) (holds []Hold) {
	now, number := Time(0), uint64(0)
	tick := func() Time { now += 1 + Time(r.IntN(8)); return now }
	for range 1 + r.IntN(4) { // one writer, or readers at once
		n := 1
		reads := r.IntN(2) == 0
		if reads {
			n += r.IntN(3)
		}
		begin := len(holds)
		for range n {
			number++
			h := Hold{How: "Lock", Key: "1", Shared: reads, Token: number}
			if r.IntN(4) == 0 {
				h.Token = 0
			}
			granted := tick()
			h.Asked, h.Got = granted-Time(r.IntN(20)), granted+Time(r.IntN(6))
			holds = append(holds, h)
		}
		if !reads && r.IntN(3) == 0 {
			holds[begin].Downgrading = tick()
		}
		for i := begin; i < len(holds); i++ {
			holds[i].Alive = tick()
		}
	}
	// No two at one time, to leave no doubt who was first.
	for i := range holds {
		h := &holds[i]
		for j, at := range []*Time{&h.Asked, &h.Got, &h.Downgrading, &h.Alive} {
			if *at != 0 {
				*at = (*at+100)*100 + Time(i*4+j)
			}
		}
	}
	for range r.IntN(3) {
		h := &holds[r.IntN(len(holds))]
		switch r.IntN(4) {
		case 0:
			h.Got -= Time(r.IntN(10)) * 100
			h.Asked = min(h.Asked, h.Got-1)
		case 1:
			h.Alive += Time(r.IntN(10)) * 100
		case 2:
			h.Token = 1 + r.Uint64N(number)
		case 3:
			h.Shared = !h.Shared && h.Downgrading == 0
		}
	}
	for i := range holds {
		h := &holds[i]
		if h.Alive <= h.Got {
			h.Alive = h.Got/100*100 + 60 + Time(i)
		}
		if h.Downgrading <= h.Got || h.Downgrading >= h.Alive {
			h.Downgrading = 0
		}
	}
	return holds
}

type step struct {
	hold   int
	op     string // got, downgraded, released
	shared bool
	token  uint64
}

type state struct {
	shared    uint64 // bits
	exclusive int    // 0: nobody
	token     uint64
}

// lock is what a lock is.
var lock = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(s, in, _ any) (bool, any) {
		now, do := s.(state), in.(step)
		bit := uint64(1) << do.hold
		switch do.op {
		case "got":
			if now.exclusive != 0 || !do.shared && now.shared != 0 || do.token != 0 && do.token <= now.token {
				return false, now
			}
			now.token = max(now.token, do.token)
			if do.shared {
				now.shared |= bit
			} else {
				now.exclusive = do.hold
			}
		case "downgraded":
			if now.exclusive != do.hold {
				return false, now
			}
			now.exclusive, now.shared = 0, now.shared|bit
		case "released":
			if now.exclusive != do.hold && now.shared&bit == 0 {
				return false, now
			}
			if now.exclusive == do.hold {
				now.exclusive = 0
			}
			now.shared &^= bit
		}
		return true, now
	},
}

func operations(holds []Hold) (ops []porcupine.Operation) {
	for i, h := range holds {
		do := func(op string, from, to Time) {
			ops = append(ops, porcupine.Operation{ClientId: i, Input: step{i + 1, op, h.Shared, h.Token}, Call: int64(from), Return: int64(to)})
		}
		do("got", h.Asked, h.Got)
		if h.Downgrading != 0 {
			do("downgraded", h.Downgrading, h.Downgrading+1)
		}
		do("released", h.Alive, h.Alive+1)
	}
	return ops
}
