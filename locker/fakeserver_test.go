package locker_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
)

// A fakeServer answers what a Locker sends, at the times that a test wants: real servers
// have no clock that a test could set. It knows nothing of what the statements say beyond the
// locks that they take.
type fakeServer struct {
	t testing.TB

	mu       sync.Mutex
	locks    map[string]*fakeConn
	readers  map[string]map[*fakeConn]int // how often each has a shared lock
	wanted   []int64                      // keys that somebody waits for, of shared locks
	freed    chan struct{}                // closed when a lock is released
	settings map[string]string
	sent     []*fakeStatement
	dialed   []time.Time
	refused  error         // if set, nobody can connect
	mute     chan struct{} // if set, no answer before it is closed
	delay    time.Duration // of each answer
	transit  time.Duration // of each answer, from when it was given: what is done has been done
	lateness time.Duration // of the answer of a slice, beyond that
	deadlock time.Duration // deadlock_timeout
	mindless bool          // the driver does not mind its ctx, as lib/pq on a link that swallows packets
	pids     int
	tokens   int64
}

// A fakeStatement is one that was sent.
type fakeStatement struct {
	pid      int
	text     string
	ops      []lockfn.Op // of a batch
	at       time.Time
	answered bool
}

func newFakeServer(t testing.TB) *fakeServer {
	return &fakeServer{t: t, locks: map[string]*fakeConn{}, readers: map[string]map[*fakeConn]int{}, freed: make(chan struct{}), settings: map[string]string{}, deadlock: time.Second}
}

// open opens a pool.
func (f *fakeServer) open() *sql.DB { return sql.OpenDB(f) }

func (f *fakeServer) Driver() driver.Driver { return nil }

func (f *fakeServer) Connect(ctx context.Context) (driver.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dialed = append(f.dialed, time.Now())
	if f.refused != nil {
		return nil, f.refused
	}
	f.pids++
	return &fakeConn{f: f, pid: f.pids, closed: make(chan struct{}), canceled: make(chan struct{}, 1)}, nil
}

// fallMute answers nothing any more.
func (f *fakeServer) fallMute() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mute = make(chan struct{})
}

func (f *fakeServer) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// statements returns those that were sent, and are as wanted.
func (f *fakeServer) statements(wanted func(*fakeStatement) bool) (all []*fakeStatement) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sent {
		if wanted(s) {
			all = append(all, s)
		}
	}
	return all
}

func isPing(s *fakeStatement) bool     { return s.text == lockfn.Ping }
func isAnswered(s *fakeStatement) bool { return s.answered }
func isSlice(s *fakeStatement) bool    { return strings.HasPrefix(s.text, "/*pgadvisory waits ") }

func does(op lockfn.Op) func(*fakeStatement) bool {
	return func(s *fakeStatement) bool { return slices.Contains(s.ops, op) }
}

// setting is one that the sessions made, in that unit.
func (f *fakeServer) setting(name string, unit time.Duration) time.Duration {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := strconv.Atoi(f.settings[name])
	if err != nil {
		f.t.Fatalf("%s is %q", name, f.settings[name])
	}
	return time.Duration(n) * unit
}

// A fakeConn is a session.
type fakeConn struct {
	f        *fakeServer
	pid      int
	batch    string
	closed   chan struct{}
	closedAt time.Time
	canceled chan struct{}
}

func (c *fakeConn) Begin() (driver.Tx, error) { return nil, errors.New("not here") }

func (c *fakeConn) Close() error {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if c.closedAt.IsZero() {
		c.closedAt = time.Now()
		close(c.closed)
		for k, readers := range c.f.readers {
			if readers[c] > 0 {
				delete(readers, c)
				c.f.free(k)
			}
		}
		for k, holder := range c.f.locks {
			if holder == c {
				c.f.free(k)
			}
		}
	}
	return nil
}

// free releases a lock. The mutex is held.
func (f *fakeServer) free(key string) {
	delete(f.locks, key)
	close(f.freed)
	f.freed = make(chan struct{})
}

// take takes a lock if it is free. The mutex is held.
func (c *fakeConn) take(key string, shared bool) bool {
	f := c.f
	if holder := f.locks[key]; holder != nil && holder != c {
		return false
	}
	if shared {
		if f.readers[key] == nil {
			f.readers[key] = map[*fakeConn]int{}
		}
		f.readers[key][c]++
		return true
	}
	for reader := range f.readers[key] {
		if reader != c {
			return false
		}
	}
	f.locks[key] = c
	return true
}

// giveBack releases a lock. The mutex is held.
func (c *fakeConn) giveBack(key string, shared bool) bool {
	f := c.f
	if !shared {
		if f.locks[key] != c {
			return false
		}
		f.free(key)
		return true
	}
	if f.readers[key][c] == 0 {
		return false
	}
	if f.readers[key][c]--; f.readers[key][c] == 0 {
		delete(f.readers[key], c)
		close(f.freed)
		f.freed = make(chan struct{})
	}
	return true
}

// reading returns how many shared holds of a key there are.
func (f *fakeServer) reading(key advisory.Key) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, times := range f.readers[key.String()] {
		n += times
	}
	return n
}

func (c *fakeConn) Prepare(query string) (driver.Stmt, error) { return &fakeStmt{c, query}, nil }

type fakeStmt struct {
	c    *fakeConn
	text string
}

func (s *fakeStmt) Close() error                               { return nil }
func (s *fakeStmt) NumInput() int                              { return -1 }
func (s *fakeStmt) Exec([]driver.Value) (driver.Result, error) { return nil, errors.New("not here") }
func (s *fakeStmt) Query([]driver.Value) (driver.Rows, error)  { return nil, errors.New("not here") }

func (s *fakeStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.QueryContext(ctx, s.text, args)
}

// send sends a statement, and returns when it is answered.
func (c *fakeConn) send(ctx context.Context, s *fakeStatement, answer func()) error {
	s.pid, s.at = c.pid, time.Now()
	c.f.mu.Lock()
	c.f.sent = append(c.f.sent, s)
	mute, delay := c.f.mute, c.f.delay
	if c.f.mindless {
		ctx = context.WithoutCancel(ctx)
	}
	c.f.mu.Unlock()
	late := time.After(delay)
	if mute != nil {
		late = nil
	}
	for {
		select {
		case <-mute:
			mute, late = nil, time.After(0)
			continue
		case <-late:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.closed:
			return driver.ErrBadConn
		}
		c.f.mu.Lock()
		if !c.closedAt.IsZero() {
			c.f.mu.Unlock()
			return driver.ErrBadConn
		}
		answer()
		s.answered = true
		transit := c.f.transit
		c.f.mu.Unlock()
		time.Sleep(transit)
		return nil
	}
}

var settingOf = regexp.MustCompile(`\('(\w+)', '([^']*)'\)`)
var sliceTime = regexp.MustCompile(`'lock_timeout', '(\d+)'`)
var singleOf = regexp.MustCompile(`^SELECT pg_catalog.generate_series.* pg_catalog.pg_(try_advisory_lock|advisory_unlock)(_shared)?\((\d+)\)`)
var listedIn = regexp.MustCompile(`'\{([\d,]*)\}'`)

func (c *fakeConn) ExecContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	s := &fakeStatement{text: query}
	if isSlice(s) {
		result, err := c.slice(ctx, s)
		select {
		case <-time.After(c.f.lateness):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return result, err
	}
	rows := 0
	single := singleOf.FindStringSubmatch(query)
	if single != nil {
		s.ops = []lockfn.Op{lockfn.OpTry}
		if single[1] == "advisory_unlock" {
			s.ops[0] = lockfn.OpUnlock
		}
	}
	err := c.send(ctx, s, func() {
		switch {
		case single != nil:
			if c.do(s.ops, single[3:], []bool{single[2] != ""}) == "t" {
				rows = lockfn.SingleYes
			}
		case strings.Contains(query, "SELECT t.i FROM"): // any of some keys
			for i, key := range strings.Split(listedIn.FindStringSubmatch(query)[1], ",") {
				if c.take(key, strings.Contains(query, "_shared")) {
					rows = i + 1
					break
				}
			}
		case query == lockfn.Ping, query == "BEGIN", query == "SELECT $1::pg_catalog.int4 AS pgadvisory":
		case strings.Contains(query, "pg_cancel_backend"): // a guard; those that are to leave come first
			c.f.cancel(listedIn.FindStringSubmatch(query)[1])
		case strings.Contains(query, "set_config"):
			for _, m := range settingOf.FindAllStringSubmatch(query, -1) {
				c.f.settings[m[1]] = m[2]
			}
		default:
			c.f.t.Errorf("unknown: %s", query)
		}
	})
	return driver.RowsAffected(rows), err
}

// cancel lets those sessions wait no more.
func (f *fakeServer) cancel(pids string) {
	for _, s := range f.sent {
		if isSlice(s) && !s.answered && slices.Contains(strings.Split(pids, ","), strconv.Itoa(s.pid)) {
			s.answered = true
		}
	}
	close(f.freed)
	f.freed = make(chan struct{})
}

// slice waits for a lock, until the slice's time is over or somebody cancels it.
func (c *fakeConn) slice(ctx context.Context, s *fakeStatement) (driver.Result, error) {
	key := strings.Fields(s.text)[4] // classid is 0, for small numbers
	ms, err := strconv.Atoi(sliceTime.FindStringSubmatch(s.text)[1])
	if err != nil {
		return nil, err
	}
	s.pid, s.at = c.pid, time.Now()
	c.f.mu.Lock()
	c.f.sent = append(c.f.sent, s)
	mute := c.f.mute != nil
	c.f.mu.Unlock()
	end := time.After(time.Duration(ms) * time.Millisecond)
	if mute {
		end = nil
	}
	for {
		c.f.mu.Lock()
		freed, transit := c.f.freed, c.f.transit
		if c.f.mute == nil && !s.answered && c.take(key, strings.Contains(s.text, "_shared")) {
			s.answered = true
			c.f.mu.Unlock()
			time.Sleep(transit)
			return driver.RowsAffected(lockfn.SliceGranted), nil
		}
		if s.answered {
			c.f.mu.Unlock()
			return driver.RowsAffected(lockfn.SliceCanceled), nil
		}
		c.f.mu.Unlock()
		select {
		case <-end:
			c.f.set(func() { s.answered = true })
			return driver.RowsAffected(lockfn.SliceTimeout), nil
		case <-freed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.closed:
			return nil, driver.ErrBadConn
		}
	}
}

func (c *fakeConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	s := &fakeStatement{text: query}
	rows := &fakeRows{}
	var batch func()
	var shared []bool
	if strings.Contains(query, "a.answers") {
		keys, codes := listed(args[0]), listed(args[1])
		for _, code := range codes {
			n, err := strconv.Atoi(code)
			if err != nil {
				return nil, err
			}
			s.ops, shared = append(s.ops, lockfn.Op(n/4)), append(shared, n/2%2 == 1)
		}
		batch = func() {
			c.f.tokens++
			rows.add(int64(c.pid), c.do(s.ops, keys, shared), c.f.tokens)
		}
	}
	err := c.send(ctx, s, func() {
		switch {
		case batch != nil:
			batch()
		case query == lockfn.About:
			rows.add(int64(c.pid), false, "PostgreSQL 18", int64(10000), int64(1), true, c.f.deadlock.Milliseconds())
		case query == "SELECT "+lockfn.Token:
			c.f.tokens++
			rows.add(c.f.tokens)
		case query == lockfn.Holders:
			rows.columns = 6
		case query == lockfn.Wanted:
			rows.columns = 4
			for _, k := range c.f.wanted {
				rows.add(int64(0), k, int64(1), "")
			}
		default:
			c.f.t.Errorf("unknown: %s", query)
		}
	})
	return rows, err
}

func listed(arg driver.NamedValue) []string {
	return strings.Split(strings.Trim(arg.Value.(string), "{}"), ",")
}

// do does a batch. The mutex is held.
func (c *fakeConn) do(ops []lockfn.Op, keys []string, shared []bool) string {
	answers := make([]byte, len(ops))
	for i, op := range ops {
		ok := false
		switch op {
		case lockfn.OpTry:
			ok = c.take(keys[i], shared[i])
		case lockfn.OpUnlock:
			ok = c.giveBack(keys[i], shared[i])
		default:
			c.f.t.Errorf("unknown: op %d", op)
		}
		answers[i] = "ft"[map[bool]int{true: 1}[ok]]
	}
	return string(answers)
}

type fakeRows struct {
	columns int
	rows    [][]driver.Value
}

func (r *fakeRows) add(values ...driver.Value) {
	r.columns = len(values)
	r.rows = append(r.rows, values)
}

func (r *fakeRows) Columns() []string { return make([]string, r.columns) }
func (r *fakeRows) Close() error      { return nil }

func (r *fakeRows) Next(dest []driver.Value) error {
	if len(r.rows) == 0 {
		return io.EOF
	}
	copy(dest, r.rows[0])
	r.rows = r.rows[1:]
	return nil
}
