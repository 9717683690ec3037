package exclusion_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/advisory_test/history"
	"github.com/pgadvisory/pgadvisory/locker"
)

func init() { harness.Jobs["rival"] = rivalJob }

// A rival is a process that takes locks in all ways, and writes down what it got.
type rival struct {
	process int
	tokens  bool
	l       *locker.Locker
	db      *sql.DB // for connections and transactions of its own, too
	book    *history.Book

	mu     sync.Mutex
	opened map[int]history.Time // its Locker's sessions, by pid
}

// rivalJob goes on until it reads "end". At "reset" it resets its connections.
func rivalJob(o harness.Order) error {
	process, err := strconv.Atoi(o.Args[0])
	if err != nil {
		return err
	}
	c := &rival{process: process, tokens: o.Args[3] == "tokens", opened: map[int]history.Time{}}
	if c.book, err = history.NewBook(o.Args[1]); err != nil {
		return err
	}
	by := &resetter{local: net.ParseIP(o.Args[2]), conns: map[net.Conn]struct{}{}}
	if c.db, err = harness.OpenBy(by, o.Driver, o.URL); err != nil {
		return err
	}
	c.db.SetMaxIdleConns(10)
	opts := []locker.Option{locker.WithFailover(harness.QuickFailover), advisory.WithObserver(harness.Observed(c.session))}
	if c.tokens {
		opts = append(opts, locker.WithFencing())
	}
	c.l = locker.New(c.db, opts...)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			for ctx.Err() == nil {
				c.contend(i < 3)
			}
		})
	}
	fmt.Println("contends")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "reset":
			by.reset()
			fmt.Println("has reset")
		case "end":
			cancel()
			wg.Wait()
			if err := errors.Join(c.l.Close(), c.db.Close()); err != nil {
				return err
			}
			fmt.Println("has ended")
			return nil
		}
	}
	return nil // nobody wants to know any more
}

func (c *rival) session(e advisory.Event) {
	if e.Kind == advisory.SessionOpened {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.opened[e.PID] = history.Now()
	}
}

// A lockCall is a call that takes locks.
type lockCall struct {
	*rival
	way   string
	asked history.Time
	key   advisory.Key
	mode  advisory.Mode
	long  bool // it holds for long
	lost  bool // a lock that it got

	mu   sync.Mutex
	pids map[advisory.Key]int // of the sessions that hold what it got
}

// contend takes a lock, or some, in some way, and releases it. If it is for long, that is one
// of those which others wait for when its holder is struck by a fault.
func (c *rival) contend(long bool) {
	w := ways[rand.N(len(ways))]
	call := &lockCall{rival: c, key: contendedKey(), mode: harness.Modes[rand.N(2)], long: long, pids: map[advisory.Key]int{}}
	if long {
		w, call.key = waits[rand.N(len(waits))], advisory.Int64(100+rand.Int64N(6))
	}
	call.way = w.name
	ctx, cancel := context.WithTimeout(context.Background(), time.Second+rand.N(2*time.Second))
	defer cancel()
	call.asked = history.Now()
	err := w.call(ctx, call)
	switch {
	case call.lost && !errors.Is(err, advisory.ErrLost):
		c.book.Wrong(fmt.Errorf("%s, whose lock was lost: %v", w.name, err))
	case errors.Is(err, advisory.ErrLost), errors.Is(err, advisory.ErrNotAcquired):
		return
	}
	for _, never := range []error{advisory.ErrNotHeld, advisory.ErrAlreadyHeld, advisory.ErrDeadlock, advisory.ErrLockTableFull, advisory.ErrUnsafeServer, advisory.ErrClosed} {
		if errors.Is(err, never) {
			c.book.Wrong(fmt.Errorf("%s: %w", w.name, err))
		}
	}
	time.Sleep(rand.N(10 * time.Millisecond)) // and more where there is no server, for a time
	if err != nil {
		time.Sleep(rand.N(100 * time.Millisecond))
	}
}

// contendedKey is one of a few, and often one of fewer.
func contendedKey() advisory.Key {
	n := rand.Int64N(40)
	if rand.N(3) == 0 {
		n %= 3
	}
	return advisory.Int64(n)
}

func (c *lockCall) options(more ...advisory.LockerOption) []advisory.LockerOption {
	return append(more, c.mode, advisory.WithObserver(c))
}

func (c *lockCall) Observe(_ context.Context, e advisory.Event) {
	if e.Kind == advisory.Acquired {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pids[e.Key] = e.PID
	}
}

// took holds what a call returned, if it did, and releases it.
func (c *lockCall) took(lock advisory.Lock, ok bool, err error) error {
	if err != nil || !ok {
		return err
	}
	c.hold(lock)
	return lock.Unlock()
}

func (c *lockCall) tookAll(locks advisory.Locks, ok bool, err error) error {
	if err != nil || !ok {
		return err
	}
	c.hold(locks...)
	return locks.Unlock()
}

func (c *lockCall) under(ctx context.Context) error {
	lock, _ := advisory.FromContext(ctx)
	c.hold(lock)
	return nil
}

// A holding is a lock that a call has got, and is about to release.
type holding struct {
	advisory.Lock
	n           int64 // in the book
	alive, told history.Time
}

// look looks whether the lock is lost.
func (h *holding) look() {
	now := history.Now()
	if h.Context().Err() == nil {
		h.alive = now
	} else if h.told == 0 {
		h.told = history.Now()
	}
}

// hold does what holders do, for a time, or until all is lost.
func (c *lockCall) hold(locks ...advisory.Lock) {
	got := history.Now()
	holdings := make([]*holding, len(locks))
	for i, lock := range locks {
		c.mu.Lock()
		pid := c.pids[lock.Key()]
		c.mu.Unlock()
		c.rival.mu.Lock()
		opened := c.opened[pid]
		c.rival.mu.Unlock()
		if opened == 0 {
			c.book.Wrong(fmt.Errorf("%s of %v: on an unknown session, pid %d", c.way, lock.Key(), pid))
		}
		if c.tokens != (lock.Token() != 0) {
			c.book.Wrong(fmt.Errorf("%s of %v: token %d", c.way, lock.Key(), lock.Token()))
		}
		holdings[i] = &holding{Lock: lock, alive: c.asked, n: c.book.Got(history.Hold{
			Process: c.process, How: c.way, Key: lock.Key().String(), Shared: lock.Mode() == harness.Shared, Token: lock.Token(),
			Session: pid, Opened: opened, Asked: c.asked, Got: got,
		})}
	}
	end := time.After(c.holdFor())
	downgrade := rand.N(5) == 0
	for working := true; working; {
		lost := 0
		for _, h := range holdings {
			if h.look(); h.told != 0 {
				lost++
			}
		}
		if downgrade {
			downgrade = false
			for _, h := range holdings {
				if h.Mode() == advisory.Exclusive {
					c.book.Downgrading(h.n)
					h.Downgrade(context.Background()) // if it fails the lock is lost, or exclusive still
				}
			}
		}
		var next <-chan struct{} // that is lost, if any is
		if lost == 0 {
			next = locks[0].Context().Done()
		}
		select {
		case <-end:
			working = false
		case <-next:
		case <-time.After(2 * time.Millisecond):
			working = lost < len(holdings)
		}
	}
	for _, h := range holdings {
		if h.look(); h.told != 0 {
			c.lost = true
			if cause := context.Cause(h.Context()); !errors.Is(cause, advisory.ErrLost) {
				c.book.Wrong(fmt.Errorf("%s of %v: its Context has ended: %w", c.way, h.Key(), cause))
			}
		}
		c.book.End(h.n, h.alive, h.told)
	}
}

func (c *lockCall) holdFor() time.Duration {
	switch {
	case c.long && rand.N(3) == 0:
		return lasting // so that a link which is cut takes some with it
	case c.long:
		return rand.N(time.Second)
	case rand.N(50) == 0:
		return rand.N(200 * time.Millisecond)
	}
	return rand.N(4 * time.Millisecond)
}

// holdBlind is hold for a lock on a connection or in a transaction of one's own, of whose
// loss nobody is told.
func (c *lockCall) holdBlind(on rowQuerier) error {
	var pid int
	if err := on.QueryRowContext(context.Background(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return err
	}
	n := c.book.Got(history.Hold{
		Process: c.process, How: c.way, Key: c.key.String(), Shared: c.mode == harness.Shared,
		Session: pid, Opened: c.asked, Asked: c.asked, Got: history.Now(), Blind: true,
	})
	time.Sleep(c.holdFor())
	c.book.End(n, history.Now(), 0)
	return nil
}

type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// A resetter dials, and can reset what it has dialed.
type resetter struct {
	local net.IP // nil: any
	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func (r *resetter) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	if r.local != nil {
		d.LocalAddr = &net.TCPAddr{IP: r.local}
	}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns[conn] = struct{}{}
	return &resettable{conn, r}, nil
}

func (r *resetter) Dial(network, address string) (net.Conn, error) {
	return r.DialContext(context.Background(), network, address)
}

func (r *resetter) DialTimeout(network, address string, d time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return r.DialContext(ctx, network, address)
}

// reset resets all connections.
func (r *resetter) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for conn := range r.conns {
		conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
	clear(r.conns)
}

type resettable struct {
	net.Conn
	r *resetter
}

func (c *resettable) Close() error {
	c.r.mu.Lock()
	delete(c.r.conns, c.Conn)
	c.r.mu.Unlock()
	return c.Conn.Close()
}
