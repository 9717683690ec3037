package locker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// A book records what happens to each key on a fake server, and what the callers of some Lockers
// were told. It checks that the two agree. The server's mutex guards it.
type book struct {
	f        *fakeServer
	start    time.Time
	fencing  bool
	slowness time.Duration // the longest time that half of a round trip takes
	process  []bookProcess

	now      int // numbers the entries
	pages    map[string][]page
	calls    []*call
	holds    map[string][]*held
	faults   []fault
	tokens   map[string]map[uint64]bool
	failures []string
	trace    []string
}

// A bookProcess is one Locker.
type bookProcess struct {
	closing bool                     // Shutdown or Close has begun
	killed  map[string]time.Duration // when the test last ended a session that held the key
}

// A page is the state of a key from one entry to the next. Waiters are a bit for each process.
type page struct {
	entry           int
	at              time.Duration
	exclusive, read bool
	waitX, waitS    uint8
}

// excludes reports whether the server refuses that mode to process, and to others.
func (p page) excludes(mode advisory.Mode) bool {
	return p.exclusive || p.waitX != 0 || mode == advisory.Exclusive && (p.read || p.waitS != 0)
}

// occupied reports whether somebody other than process keeps that mode from it.
func (p page) occupied(mode advisory.Mode, process int) bool {
	others := ^(uint8(1) << process)
	return p.exclusive || p.waitX&others != 0 || mode == advisory.Exclusive && (p.read || p.waitS&others != 0)
}

// A call is one that wants locks.
type call struct {
	process          int
	name             string
	keys             []string
	mode             advisory.Mode
	try              bool
	all              bool // of the keys; else any
	limit            time.Duration
	ctx              context.Context
	begin, end       int // entries; end is 0 while it is under way
	beganAt, endedAt time.Duration
}

// A held is a lock that a caller was given.
type held struct {
	call     *call
	key      string
	lock     advisory.Lock
	mode     advisory.Mode
	returned int
	released bool          // Unlock was called
	settling bool          // a Downgrade is under way, or its end is not known
	lost     bool          // before Unlock was called
	unlocked time.Duration // when that was
}

// A fault is a time in which errors are expected, and what comes of it later.
type fault struct {
	from, to, effect time.Duration
	silent           bool // the server did not answer
	lasting          bool // it may end calls that wait
}

func newBook(f *fakeServer, processes int, fencing bool) *book {
	b := &book{f: f, start: time.Now(), fencing: fencing, pages: map[string][]page{}, holds: map[string][]*held{}, tokens: map[string]map[uint64]bool{}}
	for range processes {
		b.process = append(b.process, bookProcess{killed: map[string]time.Duration{}})
	}
	f.changed = b.turn
	return b
}

func (b *book) at() time.Duration { return time.Since(b.start) }

func (b *book) entry() int { b.now++; return b.now }

func (b *book) log(format string, args ...any) {
	b.trace = append(b.trace, fmt.Sprintf("%12v %4d  ", b.at(), b.now)+fmt.Sprintf(format, args...))
}

// fail notes that a rule was broken.
func (b *book) fail(rule, format string, args ...any) {
	b.log("FAIL %s: "+format, append([]any{rule}, args...)...)
	b.failures = append(b.failures, rule+": "+fmt.Sprintf(format, args...))
}

func (b *book) do(change func()) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	change()
}

// turn begins a new page for a key.
func (b *book) turn(key string) {
	p := page{entry: b.entry(), at: b.at()}
	holder := b.f.locks[key]
	p.exclusive, p.read = holder != nil, len(b.f.readers[key]) > 0
	for reader := range b.f.readers[key] {
		if holder != nil && holder != reader {
			b.fail("exclusion", "key %s: a reader of process %d beside a writer of %d", key, reader.process, holder.process)
		}
		if b.f.readers[key][reader] > 1 && reader.pid != 0 {
			b.fail("once", "key %s: process %d has it shared %d times on one session", key, reader.process, b.f.readers[key][reader])
		}
	}
	if b.f.again[key] > 0 {
		b.fail("once", "key %s: process %d has it exclusively %d times", key, holder.process, 1+b.f.again[key])
	}
	for _, w := range b.f.waiting[key] {
		if w.shared {
			p.waitS |= 1 << w.c.process
		} else {
			p.waitX |= 1 << w.c.process
		}
	}
	b.pages[key] = append(b.pages[key], p)
	b.log("key %s: %s", key, b.holders(key))
	b.checkHeld(key)
}

// holders tells who has a key and who waits for it, by process and pid.
func (b *book) holders(key string) string {
	var list []string
	if c := b.f.locks[key]; c != nil {
		list = append(list, fmt.Sprintf("%d/%d has it exclusively", c.process, c.pid))
	}
	for c, times := range b.f.readers[key] {
		list = append(list, fmt.Sprintf("%d/%d has it shared %d times", c.process, c.pid, times))
	}
	for _, w := range b.f.waiting[key] {
		list = append(list, fmt.Sprintf("%d/%d waits, shared: %v", w.c.process, w.c.pid, w.shared))
	}
	return strings.Join(list, "; ")
}

// checkHeld checks that what callers believe to hold is held on the server.
func (b *book) checkHeld(key string) {
	for _, h := range b.holds[key] {
		if h.released || h.lock.Context().Err() != nil {
			continue
		}
		process := h.call.process
		holder := b.f.locks[key]
		ok := (h.mode == advisory.Exclusive || h.settling) && holder != nil && holder.process == process
		for reader := range b.f.readers[key] {
			ok = ok || (h.mode == advisory.Shared || h.settling) && reader.process == process
		}
		killed, was := b.process[process].killed[key]
		if !ok && !(was && b.at()-killed <= noticed) {
			b.fail("held", "key %s, %s: process %d believes to hold it", key, h.call.name, process)
			h.released = true // once
		}
	}
}

// noticed is within which time a Locker finds out that a session has ended: a heartbeat and some
// round trips.
const noticed = 500*time.Millisecond + 4*slowest

// begins notes a call.
func (b *book) begins(c *call) {
	b.do(func() {
		c.begin, c.beganAt = b.entry(), b.at()
		b.calls = append(b.calls, c)
		b.log("%d %s %v %v, limit %v", c.process, c.name, c.keys, c.mode, c.limit)
	})
}

// ends notes the end of a call, and the locks that it was given.
func (b *book) ends(c *call, err error, locks ...advisory.Lock) (all []*held) {
	b.do(func() {
		c.end, c.endedAt = b.entry(), b.at()
		b.log("%d %s ends: %d locks, %v", c.process, c.name, len(locks), err)
		for _, lock := range locks {
			all = append(all, b.granted(c, lock))
		}
		b.checkError(c, err)
		if c.try && err == nil && len(locks) == 0 {
			b.checkRefusal(c)
		}
		b.checkWait(c, len(locks) > 0)
		b.checkDuration(c)
	})
	return all
}

// granted notes a lock.
func (b *book) granted(c *call, lock advisory.Lock) *held {
	key := lock.Key().String()
	h := &held{call: c, key: key, lock: lock, mode: c.mode, returned: b.entry()}
	if !slices.Contains(c.keys, key) {
		b.fail("key", "%s of %v returned %s", c.name, c.keys, key)
	}
	if lock.Mode() != c.mode {
		b.fail("mode", "key %s: %s returned %v", key, c.name, lock.Mode())
	}
	b.checkToken(h)
	b.checkTurn(h)
	for _, o := range b.holds[key] {
		if o.call.process != c.process || o.released || o.lock.Context().Err() != nil || lock.Context().Err() != nil {
			continue
		}
		if h.mode == advisory.Exclusive || o.mode == advisory.Exclusive && !o.settling {
			b.fail("exclusion", "key %s: %s (%v) while %s (%v) has it", key, c.name, h.mode, o.call.name, o.mode)
		}
	}
	b.holds[key] = append(b.holds[key], h)
	b.checkHeld(key)
	return h
}

// faulty reports whether there was a fault, or an effect of one, in that time; silent: only
// such as have locks lost by deadline.
func (b *book) faulty(from, to time.Duration, silent bool) bool {
	return slices.ContainsFunc(b.faults, func(f fault) bool {
		return (f.silent || !silent) && f.from <= to && f.to+f.effect >= from
	})
}

// lookAt checks that a lock whose Context has ended was lost, and returns whether it was.
func (b *book) lookAt(h *held) (lost bool) {
	cause := context.Cause(h.lock.Context())
	switch {
	case cause == nil || h.released:
		return false
	case errors.Is(cause, advisory.ErrLost):
		b.checkLoss(h, cause)
	case !errors.Is(cause, advisory.ErrClosed) || !b.process[h.call.process].closing:
		b.fail("loss", "key %s: Context of %s ended with %v", h.key, h.call.name, cause)
	}
	return true
}

// checkLoss checks that a lock that is said to be lost was: its session was ended, or did not answer.
func (b *book) checkLoss(h *held, err error) {
	killed, was := b.process[h.call.process].killed[h.key]
	if !(was && killed+noticed >= h.call.beganAt) && !b.faulty(h.call.beganAt, b.at(), true) {
		b.fail("loss", "key %s of %s was not lost: %v", h.key, h.call.name, err)
	}
}

// kills notes that a session is ended by the test.
func (b *book) kills(c *fakeConn) {
	b.faults = append(b.faults, fault{from: b.at(), to: b.at(), effect: 3 * time.Second})
	for key, readers := range b.f.readers {
		if readers[c] > 0 {
			b.process[c.process].killed[key] = b.at()
		}
	}
	for key, holder := range b.f.locks {
		if holder == c {
			b.process[c.process].killed[key] = b.at()
		}
	}
}

// unlock unlocks a lock, and checks what that returns.
func (b *book) unlock(h *held) {
	again := b.unlocks(h)
	b.unlocked(h, again, h.lock.Unlock())
}

// unlocks notes that a lock is to be unlocked, and reports whether it was before.
func (b *book) unlocks(h *held) (again bool) {
	b.do(func() {
		if again = h.released; !again {
			h.lost, h.unlocked = b.lookAt(h), b.at()
		}
		h.released = true
		b.log("%d unlocks %s of %s", h.call.process, h.key, h.call.name)
	})
	return again
}

// unlocked checks what Unlock returned.
func (b *book) unlocked(h *held, again bool, err error) {
	b.do(func() {
		b.entry()
		b.log("%d unlocked %s of %s: %v", h.call.process, h.key, h.call.name, err)
		switch {
		case again:
			if !errors.Is(err, advisory.ErrNotHeld) {
				b.fail("unlock", "the second Unlock of %s of %s: %v", h.key, h.call.name, err)
			}
		case errors.Is(err, advisory.ErrLost):
			if !h.lost {
				b.checkLoss(h, err)
			}
		case errors.Is(err, advisory.ErrClosed):
			if !b.process[h.call.process].closing {
				b.fail("unlock", "%s of %s: %v", h.key, h.call.name, err)
			}
		case err != nil || h.lost:
			b.fail("unlock", "%s of %s, lost %v: %v", h.key, h.call.name, h.lost, err)
		}
		if h.lock.Context().Err() == nil {
			b.fail("unlock", "the Context of %s of %s goes on", h.key, h.call.name)
		}
		if took := b.at() - h.unlocked; !again && (took > 15*time.Second || took > 3*time.Second && !b.faulty(h.unlocked, b.at(), false)) {
			b.fail("duration", "Unlock of %s took %v", h.key, took)
		}
	})
}

// downgrade downgrades a lock, and checks what that returns.
func (b *book) downgrade(ctx context.Context, h *held) {
	var released bool
	b.do(func() {
		released = h.released || b.lookAt(h)
		h.settling = true
		b.log("%d downgrades %s of %s", h.call.process, h.key, h.call.name)
	})
	err := h.lock.Downgrade(ctx)
	b.do(func() {
		b.entry()
		b.log("%d downgraded %s of %s: %v", h.call.process, h.key, h.call.name, err)
		switch {
		case err == nil && released:
			b.fail("downgrade", "%s of %s, which was not held", h.key, h.call.name)
		case err == nil:
			h.mode, h.settling = advisory.Shared, false
			b.checkHeld(h.key)
		case errors.Is(err, advisory.ErrNotHeld):
			if !h.released {
				b.fail("downgrade", "%s of %s: %v", h.key, h.call.name, err)
			}
		case errors.Is(err, advisory.ErrLost):
			b.checkLoss(h, err)
		case errors.Is(err, advisory.ErrClosed):
			if !b.process[h.call.process].closing {
				b.fail("downgrade", "%s of %s: %v", h.key, h.call.name, err)
			}
		case ctx.Err() == nil || !errors.Is(err, ctx.Err()):
			b.fail("downgrade", "%s of %s: %v", h.key, h.call.name, err)
		}
	})
}

// checkEmpty checks that nothing is left when all was released.
func (b *book) checkEmpty() {
	b.do(func() {
		for key := range b.pages {
			if b.f.locks[key] != nil || len(b.f.readers[key]) > 0 || len(b.f.waiting[key]) > 0 {
				b.fail("leak", "key %s: exclusive %v, read %d times, waited for %d times", key, b.f.locks[key] != nil, len(b.f.readers[key]), len(b.f.waiting[key]))
			}
		}
	})
}

func (b *book) report() string {
	return strings.Join(b.failures, "\n") + "\n" + strings.Join(b.trace, "\n")
}
