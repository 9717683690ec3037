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
	again    map[string]int               // how often the holder has taken it beyond the first time
	readers  map[string]map[*fakeConn]int // how often each has a shared lock
	waiting  map[string][]*fakeWait       // who waits, first come first served
	wanted   []int64                      // keys that somebody waits for, of shared locks
	freed    chan struct{}                // closed when a lock is released
	settings map[string]string
	sent     []*fakeStatement
	dialed   []time.Time
	refused  error                     // if set, nobody can connect
	mute     chan struct{}             // if set, no answer before it is closed
	silent   func(*fakeStatement) bool // if set, which statements are never answered
	delay    time.Duration             // of each answer
	transit  time.Duration             // of each answer, from when it was given: what is done has been done
	lateness time.Duration             // of the answer of a slice, beyond that
	deadlock time.Duration             // deadlock_timeout
	mindless bool                      // the driver does not mind its ctx, as lib/pq on a link that swallows packets
	recovery bool                      // it is a hot standby
	pids     int
	tokens   int64
	number   int64  // server_version_num
	timeline string // eight digits, or none
	conns    []*fakeConn
	changed  func(key string)                                 // if set, called when a key's holders or waiters have changed
	latency  func(c *fakeConn) (delay, transit time.Duration) // if set, of each statement
	table    int64                                            // size of the lock table, if not 10,000
	astray   bool                                             // another session answers requests, as behind a pooler
	fails    func(text string) error                          // if set, the error with which a statement ends after it was done
	replica  fakeReplica
}

// A fakeReplica is what confirms the commits of a fakeServer.
type fakeReplica struct {
	names string                   // synchronous_standby_names
	away  chan struct{}            // if set, no commit is confirmed before it is closed
	grace time.Duration            // for how long the server gives out no lock yet
	loads int                      // how often it has read its settings again
	id    func(c *fakeConn) string // if set, which server a connection leads to
}

// server is which server a connection leads to. The mutex is held.
func (c *fakeConn) server() string {
	if id := c.f.replica.id; id != nil {
		return id(c)
	}
	return "1 1"
}

// A fakeWait is a session in the server's queue for a key.
type fakeWait struct {
	c       *fakeConn
	shared  bool
	granted bool
}

// A fakeStatement is one that was sent.
type fakeStatement struct {
	pid      int
	text     string
	ops      []lockfn.Op // of a batch
	at       time.Time
	answered bool
	wait     *fakeWait // of a slice
	key      string
}

func newFakeServer(t testing.TB) *fakeServer {
	return &fakeServer{
		t: t, locks: map[string]*fakeConn{}, again: map[string]int{}, waiting: map[string][]*fakeWait{}, readers: map[string]map[*fakeConn]int{}, freed: make(chan struct{}), settings: map[string]string{}, deadlock: time.Second, number: 180000, timeline: "00000001",
		replica: fakeReplica{names: "b"},
	}
}

// open opens a pool.
func (f *fakeServer) open() *sql.DB { return sql.OpenDB(f) }

func (f *fakeServer) Driver() driver.Driver { return nil }

func (f *fakeServer) Connect(ctx context.Context) (driver.Conn, error) { return f.connect(0) }

// A fakeProcess is one of several that connect to a server.
type fakeProcess struct {
	*fakeServer
	number int
}

func (p fakeProcess) Connect(ctx context.Context) (driver.Conn, error) { return p.connect(p.number) }

func (f *fakeServer) connect(process int) (driver.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dialed = append(f.dialed, time.Now())
	if f.refused != nil {
		return nil, f.refused
	}
	f.pids++
	c := &fakeConn{f: f, pid: f.pids, process: process, closed: make(chan struct{})}
	f.conns = append(f.conns, c)
	return c, nil
}

// fallMute answers nothing any more.
func (f *fakeServer) fallMute() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mute = make(chan struct{})
}

// speak ends that. A real server grants a lock to those who wait for it as soon as it is free, so they
// have it before it answers anybody. Were a reader left in the queue beside other readers, the answer
// about who wants the lock would say that a writer waits. The mutex is held.
func (f *fakeServer) speak() {
	close(f.mute)
	f.mute = nil
	for key := range f.waiting {
		f.serve(key)
	}
	close(f.freed)
	f.freed = make(chan struct{})
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
func isBeat(s *fakeStatement) bool     { return s.text == lockfn.Beat }
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
	process  int
	closed   chan struct{}
	closedAt time.Time
	commit   string // its synchronous_commit
}

func (c *fakeConn) Begin() (driver.Tx, error) { return nil, errors.New("not here") }

func (c *fakeConn) Close() error {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.end()
	return nil
}

// end ends the session. The mutex is held.
func (c *fakeConn) end() {
	if !c.closedAt.IsZero() {
		return
	}
	c.closedAt = time.Now()
	close(c.closed)
	for k, queue := range c.f.waiting {
		for _, w := range slices.Clone(queue) {
			if w.c == c {
				w.leave(k)
			}
		}
	}
	for k, readers := range c.f.readers {
		if readers[c] > 0 {
			delete(readers, c)
			c.f.wake(k)
		}
	}
	for k, holder := range c.f.locks {
		if holder == c {
			c.f.free(k)
		}
	}
}

// free releases an exclusive lock. The mutex is held.
func (f *fakeServer) free(key string) {
	delete(f.locks, key)
	delete(f.again, key)
	f.wake(key)
}

// wake serves those who wait, after a change of a key. The mutex is held.
func (f *fakeServer) wake(key string) {
	if f.changed != nil {
		f.changed(key)
	}
	f.serve(key)
	close(f.freed)
	f.freed = make(chan struct{})
}

// serve grants a key to those who wait for it and whose turn it is. The mutex is held.
func (f *fakeServer) serve(key string) {
	if f.mute != nil {
		return
	}
	for _, w := range slices.Clone(f.waiting[key]) {
		if !w.granted && w.c.compatible(key, w.shared) && !w.c.passes(key, w.shared, w) {
			w.granted = true
			w.remove(key)
			w.c.grant(key, w.shared)
		}
	}
}

// take takes a lock if it is free, and nobody waits for it whom that would pass. The mutex is held.
func (c *fakeConn) take(key string, shared bool) bool {
	f := c.f
	mine := f.readers[key][c] > 0 && shared || f.locks[key] == c && !shared // PostgreSQL counts
	if !mine && (!c.compatible(key, shared) || c.passes(key, shared, nil)) {
		return false
	}
	c.grant(key, shared)
	return true
}

// compatible reports whether no other session holds key in a mode that excludes this. The mutex is held.
func (c *fakeConn) compatible(key string, shared bool) bool {
	f := c.f
	if holder := f.locks[key]; holder != nil && holder != c {
		return false
	}
	for reader := range f.readers[key] {
		if !shared && reader != c {
			return false
		}
	}
	return true
}

// passes reports whether a grant would pass a session that waits in a mode which excludes this: any, or
// such as came before until. The mutex is held.
func (c *fakeConn) passes(key string, shared bool, until *fakeWait) bool {
	for _, w := range c.f.waiting[key] {
		if w == until {
			return false
		}
		if w.c != c && !(w.shared && shared) {
			return true
		}
	}
	return false
}

// grant notes a lock. The mutex is held.
func (c *fakeConn) grant(key string, shared bool) {
	f := c.f
	switch {
	case shared:
		if f.readers[key] == nil {
			f.readers[key] = map[*fakeConn]int{}
		}
		f.readers[key][c]++
	case f.locks[key] == c:
		f.again[key]++
	default:
		f.locks[key] = c
	}
	if f.changed != nil {
		f.changed(key)
	}
}

// giveBack releases a lock. The mutex is held.
func (c *fakeConn) giveBack(key string, shared bool) bool {
	f := c.f
	switch {
	case !shared && f.locks[key] != c, shared && f.readers[key][c] == 0:
		return false
	case !shared && f.again[key] > 0:
		f.again[key]--
	case !shared:
		f.free(key)
	case f.readers[key][c] > 1:
		f.readers[key][c]--
	default:
		delete(f.readers[key], c)
		f.wake(key)
	}
	return true
}

// queue puts a session into the queue for a key. The mutex is held.
func (c *fakeConn) queue(key string, shared bool) *fakeWait {
	w := &fakeWait{c: c, shared: shared}
	c.f.waiting[key] = append(c.f.waiting[key], w)
	if c.f.changed != nil {
		c.f.changed(key)
	}
	c.f.serve(key)
	return w
}

// leave takes a session out of the queue. The mutex is held.
func (w *fakeWait) leave(key string) {
	if w.remove(key) {
		w.c.f.wake(key)
	}
}

func (w *fakeWait) remove(key string) bool {
	q := w.c.f.waiting[key]
	i := slices.Index(q, w)
	if i >= 0 {
		w.c.f.waiting[key] = slices.Delete(q, i, i+1)
	}
	return i >= 0
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

func (s *fakeStmt) Query([]driver.Value) (driver.Rows, error) { return nil, errors.New("not here") }

func (s *fakeStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.QueryContext(ctx, s.text, args)
}

// send sends a statement, and returns when it is answered.
func (c *fakeConn) send(ctx context.Context, s *fakeStatement, answer func()) error {
	s.pid, s.at = c.pid, time.Now()
	c.f.mu.Lock()
	c.f.sent = append(c.f.sent, s)
	mute, delay, transit := c.f.mute, c.f.delay, c.f.transit
	if mute == nil && isBeat(s) {
		mute = c.f.replica.away
	}
	if c.f.latency != nil {
		delay, transit = c.f.latency(c)
	}
	if c.f.mindless {
		ctx = context.WithoutCancel(ctx)
	}
	silent := c.f.silent != nil && c.f.silent(s)
	c.f.mu.Unlock()
	late := time.After(delay)
	if mute != nil || silent {
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
		if c.f.latency == nil {
			transit = c.f.transit
		}
		c.f.mu.Unlock()
		time.Sleep(transit)
		return nil
	}
}

var (
	settingOf = regexp.MustCompile(`\('(\w+)', '([^']*)'\)`)
	sliceTime = regexp.MustCompile(`'lock_timeout', '(\d+)'`)
	singleOf  = regexp.MustCompile(`^SELECT pg_catalog.generate_series.* pg_catalog.pg_(try_advisory_lock|advisory_unlock)(_shared)?\((-?\d+)\)`)
	listedIn  = regexp.MustCompile(`'\{([-\d,]*)\}'`)
)

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
	tryAny := isTryAny(s)
	var single []string
	if !tryAny {
		single = singleOf.FindStringSubmatch(query)
	}
	if single != nil {
		s.ops = []lockfn.Op{lockfn.OpTry}
		if single[1] == "advisory_unlock" {
			s.ops[0] = lockfn.OpUnlock
		}
	}
	err := c.send(ctx, s, func() {
		switch {
		case single != nil && c.f.astray:
			rows = lockfn.SingleOtherPID
		case single != nil:
			if c.do(s.ops, single[3:], []bool{single[2] != ""}) == "t" {
				rows = lockfn.SingleYes
			}
		case tryAny:
			keys := strings.Split(listedIn.FindStringSubmatch(query)[1], ",")
			if c.f.astray {
				rows = len(keys) + 1
				break
			}
			for i, key := range keys {
				if c.take(key, strings.Contains(query, "_shared")) {
					rows = i + 1
					break
				}
			}
		case unlockOf.MatchString(query):
			if c.giveBack(unlockOf.FindStringSubmatch(query)[1], false) {
				rows = 1
			}
		case query == lockfn.Ping, query == "BEGIN", query == "SELECT $1::pg_catalog.int4 AS pgadvisory":
		case strings.Contains(query, "pg_cancel_backend"): // a guard; those that are to leave come first
			rows = c.f.cancel(listedIn.FindStringSubmatch(query)[1])
		case strings.Contains(query, "set_config"):
			for _, m := range settingOf.FindAllStringSubmatch(query, -1) {
				c.f.settings[m[1]] = m[2]
				if m[1] == "synchronous_commit" {
					c.commit = m[2]
				}
			}
		default:
			c.f.t.Errorf("unknown: %s", query)
		}
	})
	if err == nil {
		err = c.f.failure(query)
	}
	return driver.RowsAffected(rows), err
}

// failure returns the error with which a statement ends after it was done, if it is to fail.
func (f *fakeServer) failure(text string) error {
	f.mu.Lock()
	fails := f.fails
	f.mu.Unlock()
	if fails == nil {
		return nil
	}
	return fails(text)
}

// cancel lets those sessions wait no more, and returns how many waited. The mutex is held.
func (f *fakeServer) cancel(pids string) (n int) {
	for _, s := range f.sent {
		if isSlice(s) && s.wait != nil && !s.answered && slices.Contains(strings.Split(pids, ","), strconv.Itoa(s.pid)) {
			s.answered = !s.wait.granted // else it came too late
			if s.answered {
				s.wait.leave(s.key)
				n++
			}
		}
	}
	close(f.freed)
	f.freed = make(chan struct{})
	return n
}

// slice waits for a lock, until the slice's time is over or somebody cancels it.
func (c *fakeConn) slice(ctx context.Context, s *fakeStatement) (driver.Result, error) {
	tag := strings.Fields(s.text)
	classid, err := strconv.ParseUint(tag[3], 10, 32)
	if err != nil {
		return nil, err
	}
	objid, err := strconv.ParseUint(tag[4], 10, 32)
	if err != nil {
		return nil, err
	}
	key := strconv.FormatInt(int64(classid<<32|objid), 10)
	ms, err := strconv.Atoi(sliceTime.FindStringSubmatch(s.text)[1])
	if err != nil {
		return nil, err
	}
	s.pid, s.at = c.pid, time.Now()
	c.f.mu.Lock()
	c.f.sent = append(c.f.sent, s)
	var transit time.Duration
	if c.f.latency != nil {
		var delay time.Duration
		delay, transit = c.f.latency(c)
		c.f.mu.Unlock()
		time.Sleep(delay)
		c.f.mu.Lock()
		if !c.closedAt.IsZero() {
			c.f.mu.Unlock()
			return nil, driver.ErrBadConn
		}
	}
	s.key, s.wait = key, c.queue(key, strings.Contains(s.text, "_shared"))
	c.f.mu.Unlock()
	defer c.f.set(func() { s.wait.leave(key) })
	var end <-chan time.Time
	over := false
	for {
		c.f.mu.Lock()
		freed, mute := c.f.freed, c.f.mute
		if c.f.latency == nil {
			transit = c.f.transit
		}
		c.f.serve(key) // who is silent no more
		switch {
		case mute != nil: // it does nothing
		case !c.closedAt.IsZero():
			c.f.mu.Unlock()
			return nil, driver.ErrBadConn
		case !s.answered && s.wait.granted:
			s.answered = true
			c.f.mu.Unlock()
			time.Sleep(transit)
			return driver.RowsAffected(lockfn.SliceGranted), nil
		case s.answered:
			c.f.mu.Unlock()
			return driver.RowsAffected(lockfn.SliceCanceled), nil
		case over:
			s.answered = true
			c.f.mu.Unlock()
			return driver.RowsAffected(lockfn.SliceTimeout), nil
		case end == nil:
			end = time.After(time.Duration(ms) * time.Millisecond)
		}
		if c.f.mindless {
			ctx = context.WithoutCancel(ctx)
		}
		c.f.mu.Unlock()
		select {
		case <-end:
			over = true
		case <-freed:
		case <-mute:
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
	c.f.mu.Lock()
	names, loads := c.f.replica.names, c.f.replica.loads // a beat that waits has read them before
	c.f.mu.Unlock()
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
			rows.add(int64(c.pid), c.do(s.ops, keys, shared), c.f.token())
		}
	}
	err := c.send(ctx, s, func() {
		switch {
		case batch != nil && c.f.astray:
			rows.add(int64(c.pid+1000), "", "")
		case batch != nil:
			batch()
		case query == lockfn.About:
			rows.add(int64(c.pid), c.f.recovery, "PostgreSQL 18", c.f.tableSize(), int64(1), true, c.f.deadlock.Milliseconds(), c.f.number, int64(7), c.f.timeline)
		case query == lockfn.HeldOn:
			rows.add(int64(c.pid), int64(0), int64(0), "")
			for key, holder := range c.f.locks {
				if holder == c {
					n, _ := strconv.ParseInt(key, 10, 64)
					rows.add(int64(uint64(n)>>32), int64(uint32(n)), int64(1), "ExclusiveLock")
				}
			}
			for key, readers := range c.f.readers {
				if readers[c] > 0 {
					n, _ := strconv.ParseInt(key, 10, 64)
					rows.add(int64(uint64(n)>>32), int64(uint32(n)), int64(1), "ShareLock")
				}
			}
		case query == "SELECT "+lockfn.Token:
			c.f.tokens++
			rows.add(c.f.token())
		case query == lockfn.ServerID:
			rows.add(c.server())
		case query == lockfn.Beat:
			rows.add(c.server(), names, c.commit, strconv.Itoa(loads), true)
		case query == lockfn.Loaded:
			rows.add(strconv.Itoa(c.f.replica.loads))
		case strings.Contains(query, "pg_last_xact_replay_timestamp"):
			rows.add(c.server(), c.f.replica.grace.Milliseconds())
		case query == lockfn.Holders:
			rows.columns = 8
		case query == lockfn.Wanted:
			rows.columns = 4
			for _, k := range append(slices.Clone(c.f.wanted), c.wanted()...) {
				rows.add(int64(uint64(k)>>32), int64(uint32(k)), int64(1), "")
			}
		default:
			c.f.t.Errorf("unknown: %s", query)
		}
	})
	if err == nil {
		err = c.f.failure(query)
	}
	return rows, err
}

// tableSize returns the size of the lock table.
func (f *fakeServer) tableSize() int64 {
	if f.table > 0 {
		return f.table
	}
	return 10000
}

var unlockOf = regexp.MustCompile(`^SELECT.* WHERE pg_catalog.pg_advisory_unlock\((-?\d+)\)`)

// A serverError is one of the server, with its SQLSTATE.
type serverError string

func (e serverError) Error() string    { return "the server's error " + string(e) }
func (e serverError) SQLState() string { return string(e) }

// token returns the last token that was drawn, as the server writes it. The mutex is held.
func (f *fakeServer) token() string { return f.timeline + strconv.FormatInt(f.tokens, 10) }

// wanted returns the keys that this session holds and others wait for. The mutex is held.
func (c *fakeConn) wanted() (keys []int64) {
	for key, queue := range c.f.waiting {
		if len(queue) == 0 || c.f.locks[key] != c && c.f.readers[key][c] == 0 {
			continue
		}
		if n, err := strconv.ParseInt(key, 10, 64); err == nil {
			keys = append(keys, n)
		}
	}
	return keys
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
		case lockfn.OpDowngrade:
			if ok = c.f.locks[keys[i]] == c; ok {
				c.grant(keys[i], true)
				c.giveBack(keys[i], false)
			}
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
