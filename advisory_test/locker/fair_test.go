package locker_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// A contender is a way to take key and to give it back.
type contender struct {
	name string
	make func(t *testing.T, p *harness.Pool) func(m advisory.Mode, hold time.Duration) error
}

var byHandContender = contender{"pg_advisory_lock", func(t *testing.T, p *harness.Pool) func(advisory.Mode, time.Duration) error {
	conn := p.NewConn(t)
	return func(m advisory.Mode, hold time.Duration) error {
		fn := map[advisory.Mode]string{advisory.Exclusive: "", advisory.Shared: "_shared"}[m]
		if _, err := conn.ExecContext(context.Background(), fmt.Sprintf("SELECT pg_advisory_lock%s(%s)", fn, harness.Key.SQL())); err != nil {
			return err
		}
		time.Sleep(hold)
		_, err := conn.ExecContext(context.Background(), fmt.Sprintf("SELECT pg_advisory_unlock%s(%s)", fn, harness.Key.SQL()))
		return err
	}
}}

// ofLocker is a contender for whom l waits; they are as goroutines of one process.
func ofLocker(name string, l *locker.Locker) contender {
	return contender{name, func(*testing.T, *harness.Pool) func(advisory.Mode, time.Duration) error {
		return func(m advisory.Mode, hold time.Duration) error {
			return l.Do(context.Background(), harness.Key, func(context.Context) error { time.Sleep(hold); return nil }, m)
		}
	}}
}

// compete has contenders take key over and over, in a mode, for a hold, and starts
// them one after the other. stop returns how often each had it.
func compete(t *testing.T, p *harness.Pool, m advisory.Mode, hold time.Duration, cs ...contender) (stop func() []int64) {
	done := make(chan struct{})
	counts := make([]atomic.Int64, len(cs))
	var wg sync.WaitGroup
	for i, c := range cs {
		take := c.make(t, p)
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := take(m, hold); err != nil {
					t.Errorf("%s: %v", c.name, err)
					return
				}
				counts[i].Add(1)
			}
		})
		time.Sleep(hold / time.Duration(len(cs)))
	}
	return func() (ns []int64) {
		for i := range counts {
			ns = append(ns, counts[i].Load())
		}
		close(done)
		wg.Wait()
		return ns
	}
}

// Readers who overlap, so that there is always one, do not starve a writer.
func TestWriterAmongReaders(t *testing.T) {
	pgtest.Slow(t)
	const hold = 300 * time.Millisecond
	harness.Fair(t, func(t *testing.T, p *harness.Pool) {
		p.SetMaxOpenConns(30)
		for _, readers := range []contender{byHandContender, ofLocker("a Locker", p.Locker(t))} {
			for _, writer := range []contender{byHandContender, ofLocker("another Locker", p.Locker(t))} {
				stop := compete(t, p, advisory.Shared, hold, readers, readers, readers)
				write := writer.make(t, p)
				start := time.Now()
				const n = 3
				wrote := make(chan error)
				go func() {
					for range n {
						if err := write(advisory.Exclusive, 0); err != nil {
							wrote <- err
						}
					}
					close(wrote)
				}()
				select {
				case err := <-wrote:
					if err != nil {
						t.Error(err)
					}
				case <-time.After(harness.Patience):
					t.Errorf("a writer by %s starves among readers by %s", writer.name, readers.name)
				}
				took := time.Since(start)
				t.Logf("readers by %s, %v each, had it %d times; a writer by %s each %v", readers.name, hold, stop(), writer.name, (took / n).Round(time.Millisecond))
				for range wrote {
				}
			}
		}
	})
}

// Who waits by a Locker has its turn as often as who waits plainly.
func TestEqualWaitersGetEqualTurns(t *testing.T) {
	pgtest.Slow(t)
	const hold, span = 200 * time.Millisecond, 6 * time.Second
	harness.Fair(t, func(t *testing.T, p *harness.Pool) {
		stop := compete(t, p, advisory.Exclusive, hold, byHandContender, byHandContender, byHandContender, ofLocker("a Locker", p.Locker(t)))
		time.Sleep(span)
		turns := stop()
		t.Logf("in %v, holding %v: three who wait plainly %d, a Locker %d", span, hold, turns[:3], turns[3])
		if turns[3] < (turns[0]+turns[1]+turns[2])/3/2 {
			t.Error("the Locker had too few turns")
		}
	})
}

// The goroutines of one process hand the lock to each other, but not for ever.
func TestHandoverInProcessStarvesNobody(t *testing.T) {
	pgtest.Slow(t)
	const hold = 5 * time.Millisecond
	harness.Fair(t, func(t *testing.T, p *harness.Pool) {
		goroutine := ofLocker("a Locker", p.Locker(t))
		cs := []contender{byHandContender}
		for range 8 {
			cs = append(cs, goroutine)
		}
		stop := compete(t, p, advisory.Exclusive, hold, cs...)
		time.Sleep(3 * time.Second)
		turns := stop()
		t.Logf("one who waits plainly had it %d times, eight goroutines of a Locker %d", turns[0], turns[1:])
		var all int64
		for _, n := range turns[1:] {
			all += n
		}
		// 50 ms are handed over within the process: some ten holds.
		if turns[0] < all/40 {
			t.Error("the one who waits plainly had too few turns")
		}
	})
}
