package locker_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/locker"
)

// modelRounds is how many programs a test run tries: always the same. PGADVISORY_MODEL_ROUNDS tries so
// many others, and PGADVISORY_MODEL_SEED repeats the one that a failure names.
const modelRounds = 600

// Random programs of several callers, on one or two Lockers and a server with faults, do what the
// model allows.
func TestRandomPrograms(t *testing.T) {
	rounds, seed, only := modelRounds, uint64(0), false
	if s := os.Getenv("PGADVISORY_MODEL_ROUNDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("PGADVISORY_MODEL_ROUNDS=%s: %v", s, err)
		}
		rounds, seed = n, rand.Uint64()
	}
	if s := os.Getenv("PGADVISORY_MODEL_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("PGADVISORY_MODEL_SEED=%s: %v", s, err)
		}
		seed, only = n, true
	}
	for i := range rounds {
		if !only {
			seed++
		}
		stuck := time.AfterFunc(time.Minute, func() { fmt.Fprintf(os.Stderr, "PGADVISORY_MODEL_SEED=%d takes a minute\n", seed) })
		report := runProgram(t, randomProgram(seed))
		stuck.Stop()
		if report != "" {
			t.Fatalf("program %d, repeat it with PGADVISORY_MODEL_SEED=%d (the scheduler has a part in it, so several times):\n%s", i+1, seed, report)
		}
	}
}

// A program is any bytes.
func FuzzEngine(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(randomProgram(seed))
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) > 400 {
			t.Skip("long")
		}
		if report := runProgram(t, program); report != "" {
			t.Fatal(report)
		}
	})
}

func randomProgram(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	program := make([]byte, 6+5*(8+r.IntN(40)))
	for i := range program {
		program[i] = byte(r.Uint32())
	}
	return program
}

// A step is what one caller, or the world, does next.
type step struct{ what, keys, mode, pause, arg byte }

var rests = []time.Duration{
	0, 0, 0, time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 17 * time.Millisecond,
	60 * time.Millisecond, 200 * time.Millisecond, 600 * time.Millisecond, 1500 * time.Millisecond, 4 * time.Second,
}

var limits = []time.Duration{
	0, 3 * time.Millisecond, 20 * time.Millisecond, 90 * time.Millisecond, 400 * time.Millisecond,
	time.Second, 5 * time.Second, 8 * time.Second,
}

// slowest is the longest time that half of a round trip takes.
const slowest = 150 * time.Millisecond

func (m *machine) rest(n byte) time.Duration {
	if m.dense {
		n %= 7
	}
	return rests[int(n)%len(rests)]
}

// A machine runs one program.
type machine struct {
	f       *fakeServer
	b       *book
	lockers []*locker.Locker
	keys    int
	readers bool // shared is more frequent
	dense   bool // all is at nearly the same time
	standby bool // the Lockers require one
	all     sync.WaitGroup
}

// runProgram returns what was wrong, or nothing.
func runProgram(t *testing.T, program []byte) (report string) {
	synctest.Test(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		report = run(t, program)
		synctest.Wait()
		if runtime.NumGoroutine() <= before || report != "" {
			return
		}
		stacks := make([]byte, 1<<20) // of others, too: count those of this test
		stacks = stacks[:runtime.Stack(stacks, true)]
		if n := bytes.Count(stacks, []byte("synctest bubble")); n > 3 { // this one and two of the testing package
			report = fmt.Sprintf("goroutines: %d are left\n%s", n-3, stacks)
		}
	})
	return report
}

func run(t *testing.T, program []byte) string {
	var head [6]byte
	program = program[copy(head[:], program):]
	m := &machine{f: newFakeServer(t), keys: []int{1, 1, 2, 4}[head[0]%4], dense: head[0]&0x40 != 0, readers: head[0]&0x80 != 0, standby: head[5]&0x60 == 0x60}
	processes := 1 + int(head[1]%2)
	fencing := head[2]&1 != 0
	m.b = newBook(m.f, processes, fencing)
	m.latencies(program, head[3])
	if head[2]&0x70 == 0 {
		m.f.deadlock = 0 // so that all waits are polled
	}
	m.f.mindless = head[2]&0x0e == 0
	var pools []*sql.DB
	for i := range processes {
		db := sql.OpenDB(fakeProcess{m.f, i})
		opts := []locker.Option{locker.WithoutServerCheck(), locker.WithMaxConns(2 + int(head[5]%3))}
		least := 2
		if m.standby {
			opts, least = append(opts, locker.WithStandby()), 3
		}
		if head[4]&0x07 == 0 {
			db.SetMaxOpenConns(least + int(head[4]>>3%3))
		}
		if fencing {
			opts = append(opts, locker.WithFencing())
		}
		pools = append(pools, db)
		m.lockers = append(m.lockers, locker.New(db, opts...))
	}

	callers := 2 + int(head[1]>>1%4)
	steps := make([][]step, callers+1) // those of the world are the first
	for ; len(program) >= 5; program = program[5:] {
		s := step{program[0], program[1], program[2], program[3], program[4]}
		who := int(s.what>>5)%callers + 1
		if s.keys&0x30 == 0 || s.keys&0x30 == 0x10 && head[4]&0x20 != 0 {
			who = 0
		}
		steps[who] = append(steps[who], s)
	}
	m.all.Go(func() { m.world(steps[0], head[4]>>6 > 1) })
	for i, list := range steps[1:] {
		m.all.Go(func() { m.caller(i%processes, list) })
	}
	ended := make(chan struct{})
	go func() { m.all.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Hour):
		panic("a call does not return:\n" + m.b.report())
	}

	time.Sleep(20 * time.Second) // in which what is lost is given up
	m.b.checkEmpty()
	for i, l := range m.lockers {
		if st := l.Stats(); st.Users != 0 || st.Held != 0 || st.Waiting != 0 {
			m.b.do(func() { m.b.fail("leak", "process %d: %+v", i, st) })
		}
		m.b.do(func() { m.b.process[i].closing = true })
		if err := l.Close(); err != nil {
			m.b.do(func() { m.b.fail("close", "process %d: %v", i, err) })
		}
		time.Sleep(3 * time.Second)
		if st := l.Stats(); st.Sessions != 0 {
			m.b.do(func() { m.b.fail("leak", "process %d after Close: %+v", i, st) })
		}
		pools[i].Close()
	}
	m.b.do(func() {
		for _, c := range m.f.conns {
			if c.closedAt.IsZero() {
				m.b.fail("leak", "the session with pid %d of process %d is open", c.pid, c.process)
			}
		}
	})
	if len(m.b.failures) > 0 {
		return m.b.report()
	}
	return ""
}

// latencies has the answers of each session take times of its own.
func (m *machine) latencies(program []byte, profile byte) {
	h := fnv.New64a()
	h.Write(program)
	seed := h.Sum64()
	chance := map[*fakeConn]*rand.Rand{}
	most := []time.Duration{0, 2 * time.Millisecond, 20 * time.Millisecond, slowest}[profile%4]
	m.b.slowness = most
	m.f.latency = func(c *fakeConn) (delay, transit time.Duration) {
		r := chance[c]
		if r == nil {
			r = rand.New(rand.NewPCG(seed, uint64(c.pid)))
			chance[c] = r
		}
		most := most
		if profile&4 != 0 && r.IntN(8) != 0 {
			most /= 10
		}
		return time.Duration(r.Int64N(int64(most) + 1)), time.Duration(r.Int64N(int64(most) + 1))
	}
}

func (m *machine) key(n byte) advisory.Key { return advisory.Int64(1 + int64(n)%int64(m.keys)) }

// some returns keys, of which one may come twice.
func (m *machine) some(n byte) (keys []advisory.Key) {
	for i := range 1 + int(n>>6) {
		keys = append(keys, m.key(n>>(2*i)))
	}
	return keys
}

func (m *machine) mode(n byte) advisory.Mode {
	if n%2 == 0 || m.readers && n%8 != 1 {
		return advisory.Shared
	}
	return advisory.Exclusive
}
