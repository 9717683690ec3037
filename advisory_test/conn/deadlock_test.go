package conn_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// A ring is a scene in which each party wants what the next one holds, and the last
// what the first holds.
type ring struct {
	name    string
	parties []party
	hold    advisory.Mode
	ask     advisory.Mode
	oneKey  bool          // all hold and want the same
	linger  time.Duration // before who is told gives way
	writers int           // who queue up for each key before the ring closes
	plain   bool          // these writers wait on the server, and have waited for long
	told    int           // who it must be, from 1; 0: exactly one, whoever; -1: nobody
	luck    bool          // the queue may make way by itself, so that nobody need be told
}

// rings begins with those that take longest.
var rings = []ring{
	{name: "two connections, gives way late", parties: []party{waitOnConn, waitOnConn}, linger: 6 * time.Second},
	{name: "connection, foreign transaction, gives way late", parties: []party{waitOnConn, waitInTx}, linger: 3 * time.Second},
	{name: "two xact.Do, gives way late", parties: []party{waitByTxDo, waitInTxDo}, linger: 3 * time.Second},
	{name: "gave up, connection", parties: []party{giveUp, waitOnConn}, linger: 4 * time.Second, told: -1},
	{name: "reader that has waited, connection", parties: []party{haveWaited, waitOnConn}, hold: harness.Shared, writers: 2, linger: 4 * time.Second, told: -1},
	{name: "reader that has waited, foreign transaction", parties: []party{haveWaited, waitInTx}, hold: harness.Shared, writers: 2, linger: 4 * time.Second, told: -1},
	{name: "readers behind plain writers", parties: []party{waitByTxDo, waitOnConn}, hold: harness.Shared, ask: harness.Shared, writers: 1, plain: true},
	{name: "readers in foreign transactions behind plain writers", parties: []party{waitInTx, waitInTx}, hold: harness.Shared, ask: harness.Shared, writers: 1, plain: true},
	{name: "two connections", parties: []party{waitOnConn, waitOnConn}},
	{name: "two foreign transactions", parties: []party{waitInTx, waitInTx}},
	{name: "connection, foreign transaction", parties: []party{waitOnConn, waitInTx}},
	{name: "xact.Do, sqlconn.Do", parties: []party{waitInTxDo, waitInConnDo}},
	{name: "xact.Do that waits, connection", parties: []party{waitByTxDo, waitOnConn}},
	{name: "two xact.Do that wait", parties: []party{waitByTxDo, waitByTxDo}},
	{name: "xact.Do at repeatable read, foreign transaction", parties: []party{waitByRepeatableTxDo, waitInTx}},
	{name: "LockAll, Lock", parties: []party{waitForAll, waitInTx}},
	{name: "LockAll that holds a part, Lock", parties: []party{lockAllAtOnce, waitInTx}},
	{name: "LockAll that holds a part, connection", parties: []party{lockAllAtOnce, waitOnConn}},
	{name: "connection, xact.Do, foreign transaction", parties: []party{waitOnConn, waitByTxDo, waitInTx}},
	{name: "connection, foreign transaction, xact.Do, connection", parties: []party{waitOnConn, waitInTx, waitByTxDo, waitOnConn}},
	{name: "shared held, exclusive wanted", parties: []party{waitOnConn, waitInTx}, hold: harness.Shared},
	{name: "exclusive held, shared wanted", parties: []party{waitOnConn, waitInTx, waitByTxDo}, ask: harness.Shared},
	{name: "shared held, shared wanted", parties: []party{waitOnConn, waitInTx, waitByTxDo}, hold: harness.Shared, ask: harness.Shared, told: -1},
	{name: "two upgrades", parties: []party{upgrade, upgrade}, hold: harness.Shared, oneKey: true},
	{name: "blocked on a row, foreign transaction", parties: []party{waitForRow, waitWithRow}, told: 2},
	{name: "readers behind writers, foreign transactions", parties: []party{waitInTx, waitInTx}, hold: harness.Shared, ask: harness.Shared, writers: 3, luck: true},
	{name: "readers behind writers, foreign transaction and connection", parties: []party{waitInTx, waitOnConn}, hold: harness.Shared, ask: harness.Shared, writers: 3, told: -1},
	{name: "readers behind writers, connections", parties: []party{waitOnConn, waitByTxDo}, hold: harness.Shared, ask: harness.Shared, writers: 3, told: -1},
	{name: "plain wait, connection", parties: []party{waitPlainly, waitOnConn}},
	{name: "plain wait, foreign transaction", parties: []party{waitPlainly, waitInTx}},
}

// Exactly one side of a deadlock is told. What it waited on stays usable, and once it
// has released what it holds the others get through.
func TestDeadlockIsToldToOneSide(t *testing.T) {
	pgtest.Slow(t)
	these := rings
	if harness.Rounds(t) == 1 { // be quick on a server that others use
		these = slices.DeleteFunc(slices.Clone(rings), func(r ring) bool { return r.linger > 0 || r.writers > 0 })
	}
	harness.EachDriverAtOnce(t, func(t *testing.T, p *harness.Pool) { runRings(t, p, these, 25) })
}

// The sessions' role need not see those of others.
func TestDeadlockIsToldToAnUnprivilegedRole(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel() // on a server of its own
	server := pgtest.NewServer(t, "max_connections=200")
	harness.EachAtOnce(t,
		func(t testing.TB) string { return harness.Unprivileged(t, server) },
		func(t *testing.T, p *harness.Pool) { runRings(t, p, rings, 40) })
}

// runRings runs the rings at the same time, as far as conns connections allow. So many looks
// for a deadlock at once make the machine late, which is no fault of theirs.
func runRings(t *testing.T, p *harness.Pool, rings []ring, conns int) {
	harness.DoSQL(t, p, rowsOfClaims)
	lateness := p.Lateness(t)
	n := harness.Rounds(t)
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		times harness.Spread
		free  = make(chan struct{}, conns)
	)
	for round := range n {
		for _, r := range rings {
			for range r.conns() {
				free <- struct{}{}
			}
			wg.Go(func() {
				took, err := r.Run(t.Context(), p, round)
				for range r.conns() {
					<-free
				}
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Errorf("%s, round %d: %v", r.name, round, err)
				} else if took > 0 {
					times = append(times, took)
				}
			})
		}
	}
	wg.Wait()
	t.Logf("told after: %v", times)
	late := lateness()
	if m := times.Median(); m > 3*time.Second+late {
		t.Errorf("half of them were told no sooner than %v after, on a machine that is late by %v", m, late)
	}
	p.NoLocks(t)
}

func (r ring) conns() int { return len(r.parties) * (1 + r.writers) }

// Run returns how long after the ring was closed somebody was told.
func (r ring) Run(ctx context.Context, p *harness.Pool, round int) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*harness.Patience) // each party waits for several things in turn
	defer cancel()
	missing := atomic.Int32{}
	missing.Store(int32(len(r.parties)))
	var (
		closed  time.Time
		all     = make(chan struct{})
		writers errgroup
	)
	meet := func() error {
		if missing.Add(-1) == 0 {
			if err := r.queueUp(ctx, p, round, &writers); err != nil {
				return err
			}
			closed = time.Now()
			close(all)
		}
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}

	seats := make([]seat, len(r.parties))
	errs := make([]error, len(r.parties))
	var wg sync.WaitGroup
	for i, take := range r.parties {
		mine, wants := i, (i+1)%len(seats)
		if r.oneKey {
			mine, wants = 0, 0
		}
		seats[i] = seat{
			Pool: p, ctx: ctx, meet: meet, linger: r.linger,
			mine:  harness.Claim{Key: r.key(round, mine), Mode: r.hold},
			wants: harness.Claim{Key: r.key(round, wants), Mode: r.ask},
		}
		wg.Go(func() {
			if errs[i] = take(&seats[i]); errs[i] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	errs = append(errs, writers.Wait())

	var told []int
	for i, s := range seats {
		switch {
		case errors.Is(s.err, advisory.ErrDeadlock):
			told = append(told, i+1)
			took = s.ended.Sub(closed)
		case s.err != nil:
			errs[i] = errors.Join(fmt.Errorf("party %d of %d: %w", i+1, len(seats), s.err), errs[i])
		}
	}
	switch {
	case errors.Join(errs...) != nil:
	case r.luck && len(told) == 0:
	case r.told < 0 && len(told) > 0, r.told >= 0 && len(told) != 1, r.told > 0 && told[0] != r.told:
		err = fmt.Errorf("told to %v of %d parties", told, len(seats))
	}
	return took, errors.Join(errors.Join(errs...), err)
}

// queueUp returns when the writers wait for each key.
func (r ring) queueUp(ctx context.Context, p *harness.Pool, round int, writers *errgroup) error {
	var opts []advisory.ConnOption
	if r.plain {
		opts = append(opts, sqlconn.PlainWait())
	}
	for i := range r.parties {
		for range r.writers {
			conn, err := p.Pin(ctx)
			if err != nil {
				return err
			}
			pid, err := pidOf(ctx, conn)
			if err != nil {
				return err
			}
			writers.Go(func() error {
				defer conn.Close()
				err := sqlconn.Lock(ctx, conn, r.key(round, i), opts...)
				return errors.Join(err, sqlconn.UnlockAll(ctx, conn))
			})
			if err := untilTrue(ctx, p, "a writer waits", "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND pid = $1", pid); err != nil {
				return err
			}
		}
	}
	if r.plain { // the server has looked for a deadlock, once
		time.Sleep(1500 * time.Millisecond)
	}
	return nil
}

// errgroup joins the errors of its goroutines.
type errgroup struct {
	sync.WaitGroup
	mu  sync.Mutex
	err error
}

func (g *errgroup) Go(f func() error) {
	g.WaitGroup.Go(func() {
		err := f()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.err = errors.Join(g.err, err)
	})
}

func (g *errgroup) Wait() error {
	g.WaitGroup.Wait()
	return g.err
}

// key is what party i holds: bigints and pairs by turns, in an order that goes with i.
func (r ring) key(round, i int) advisory.Key {
	n, _ := advisory.HashText(fmt.Sprint(r.name, round)).Int64()
	if n%2 == 0 {
		return advisory.Pair(int32(n), int32(i))
	}
	return advisory.Int64(n<<8 + int64(i))
}
