package xact_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// Who takes keys in one order is never told of a deadlock, however long it waits and
// whoever waits for it.
func TestConsistentOrderIsNoDeadlock(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	const workers = 20
	harness.EachDriverAtOnce(t, func(t *testing.T, p *harness.Pool) {
		var left, made, looked atomic.Int64
		n := 340 * harness.Rounds(t) // over 1,000 with all drivers
		left.Store(int64(n))
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(harness.Rounds(t))*4*harness.Patience)
		defer cancel()
		var wg sync.WaitGroup

		// One keeps the last key for long at times, so that those who want it wait
		// until they look for a deadlock, and others wait for them.
		wg.Go(func() {
			for range 2 * harness.Rounds(t) {
				err := p.Do(ctx, inOrder[len(inOrder)-1], func(context.Context, sqlconn.Conn) error {
					time.Sleep(1700 * time.Millisecond)
					return nil
				})
				if err != nil {
					t.Errorf("the one who keeps the last key: %v", err)
					return
				}
				time.Sleep(500 * time.Millisecond)
			}
		})

		start := time.Now()
		for i := range workers {
			take := takers[i%len(takers)]
			wg.Go(func() {
				for left.Add(-1) >= 0 && ctx.Err() == nil {
					// A try succeeds only while nobody is queued up on the server.
					time.Sleep(rand.N(40 * time.Millisecond))
					r := random()
					start := time.Now()
					err := take(ctx, p, r)
					if time.Since(start) > 1500*time.Millisecond {
						looked.Add(1)
					}
					if err != nil {
						t.Errorf("%v then %v: %v", r.first, r.second, err)
						return
					}
					made.Add(1)
				}
			})
		}
		wg.Wait()
		if made.Load() != int64(n) {
			t.Errorf("%d rounds of %d were made", made.Load(), n)
		}
		t.Logf("%d rounds in %v, %d of them waited long enough to look for a deadlock", n, harness.Round(time.Since(start)), looked.Load())
		if looked.Load() == 0 {
			t.Error("nobody waited long enough to look for a deadlock")
		}
		p.NoLocks(t)
	})
}

// inOrder is the order in which all take them.
var inOrder = []advisory.Key{
	advisory.Int64(-5), advisory.Int64(1), advisory.Int64(2), advisory.Int64(3), advisory.Int64(1 << 40), advisory.Pair(1, 1), advisory.Pair(1, 2), advisory.Pair(2, 1),
}

// An inOrderRound is a round of one worker.
type inOrderRound struct{ first, second harness.Claim }

func random() inOrderRound {
	n := len(inOrder) - 1
	if rand.N(10) == 0 {
		n++ // the one that is kept for long
	}
	a, b := rand.N(n-1), 0
	b = a + 1 + rand.N(n-a-1)
	if n == len(inOrder) {
		b = n - 1
	}
	return inOrderRound{harness.Claim{Key: inOrder[a], Mode: harness.Modes[rand.N(2)]}, harness.Claim{Key: inOrder[b], Mode: harness.Modes[rand.N(2)]}}
}

func (inOrderRound) work() { time.Sleep(rand.N(2 * time.Millisecond)) }

// takers take two keys in order, work, and release them.
var takers = []func(ctx context.Context, p *harness.Pool, r inOrderRound) error{
	func(ctx context.Context, p *harness.Pool, r inOrderRound) error { // a connection
		conn, err := p.Pin(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		err = sqlconn.Lock(ctx, conn, r.first.Key, r.first.Mode)
		if err == nil {
			err = sqlconn.Lock(ctx, conn, r.second.Key, r.second.Mode)
		}
		r.work()
		return errors.Join(err, sqlconn.UnlockAll(ctx, conn))
	},
	func(ctx context.Context, p *harness.Pool, r inOrderRound) error { // a foreign transaction
		return harness.InOwnTx(p, func(tx xact.Tx) error {
			if err := xact.Lock(ctx, tx, r.first.Key, r.first.Mode); err != nil {
				return err
			}
			err := xact.Lock(ctx, tx, r.second.Key, r.second.Mode)
			r.work()
			return err
		})
	},
	func(ctx context.Context, p *harness.Pool, r inOrderRound) error { // both at once
		return harness.InOwnTx(p, func(tx xact.Tx) error {
			r.work()
			return xact.LockAll(ctx, tx, []advisory.Key{r.second.Key, r.first.Key}, r.first.Mode)
		})
	},
	func(ctx context.Context, p *harness.Pool, r inOrderRound) error { // xact.Do
		return p.TxDo(ctx, r.first.Key, func(ctx context.Context, tx xact.Tx) error {
			err := xact.Lock(ctx, tx, r.second.Key, r.second.Mode)
			r.work()
			return err
		}, r.first.Mode)
	},
	func(ctx context.Context, p *harness.Pool, r inOrderRound) error { // sqlconn.Do, then xact.Do on its connection
		return p.Do(ctx, r.first.Key, func(ctx context.Context, conn sqlconn.Conn) error {
			return xact.Do(ctx, harness.BeginOn(conn), r.second.Key, func(context.Context, xact.Tx) error { r.work(); return nil }, r.second.Mode)
		}, r.first.Mode)
	},
}
