package locker_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

func init() { harness.Jobs["lock"] = lockJob }

// lockJob waits for a lock and keeps it.
func lockJob(o harness.Order) error {
	db, err := o.Open()
	if err != nil {
		return err
	}
	k, err := advisory.ParseKey(o.Args[0])
	if err != nil {
		return err
	}
	l := locker.New(db)
	fmt.Println("waits")
	if _, err := l.Lock(context.Background(), k); err != nil {
		return err
	}
	fmt.Println("holds")
	<-harness.Orphaned()
	return l.Close()
}

// A process that is killed, as it holds or as it waits, keeps no lock: the next has it at
// once. PGADVISORY_KILLS says how often.
func TestKilledProcesses(t *testing.T) {
	t.Parallel()
	const lanes = 4
	n := harness.Number(t, "PGADVISORY_KILLS", 20)
	lag := harness.WatchLag(t)
	url := pgtest.URL(t)
	var mu sync.Mutex
	times := map[string][]time.Duration{}
	harness.AtOnce(t, func(all *harness.Together) {
		for lane := range lanes {
			d := harness.Drivers[lane%2]
			what, kill := "holder", killHolder
			if lane >= lanes/2 {
				what, kill = "waiter", killWaiter
			}
			all.Start(what+" "+d.Name, func(t *testing.T) {
				p := d.Open(t, url)
				first, next := p.Locker(t), p.Locker(t)
				for i := lane; i < n; i += lanes {
					k := advisory.Int64(int64(i))
					o := harness.Order{Job: "lock", Driver: d.Sql, URL: url, Args: []string{k.String()}}
					took := kill(t, p, first, next, k, o)
					mu.Lock()
					times[what] = append(times[what], took)
					mu.Unlock()
				}
			})
		}
	})
	if t.Failed() {
		return
	}
	for what, took := range times {
		slices.Sort(took)
		median, most := took[len(took)/2], took[len(took)-1]
		t.Logf("%d times a %s was killed: the next had the lock %v after, in the median, and %v at the most",
			len(took), what, median.Round(time.Millisecond), most.Round(time.Millisecond))
		if late := lag.Get(); median > time.Second+10*late || most > harness.Slack {
			t.Errorf("too late, on a machine that was late by up to %v: %v", late, took)
		}
	}
}

// killHolder kills a process that holds k. It returns after which time next has it.
func killHolder(t *testing.T, p *harness.Pool, _, next *locker.Locker, k advisory.Key, o harness.Order) time.Duration {
	holder := o.Start(t)
	holder.Says("holds", harness.Patience)
	return nextAfter(t, p, next, k, holder.Kill)
}

// killWaiter kills a process that waits for k, while first holds it; then that lets go.
func killWaiter(t *testing.T, p *harness.Pool, first, next *locker.Locker, k advisory.Key, o harness.Order) time.Duration {
	lock, ok := harness.LockerTry(t, first, k)
	if !ok {
		t.Fatal("not free")
	}
	waiter := o.Start(t)
	waiter.Says("waits", harness.Patience)
	harness.Eventually(t, "the process waits", func() bool { return waiters(t, p, k) == 1 })
	return nextAfter(t, p, next, k, func() {
		waiter.Kill()
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// nextAfter has l wait for k, and returns how long after do it has it.
func nextAfter(t *testing.T, p *harness.Pool, l *locker.Locker, k advisory.Key, do func()) time.Duration {
	t.Helper()
	before := waiters(t, p, k)
	got := make(chan time.Time, 1)
	go func() {
		lock, err := l.Lock(context.Background(), k)
		got <- time.Now()
		if err != nil {
			t.Error(err)
		} else {
			lock.Unlock()
		}
	}()
	harness.Eventually(t, "the next waits", func() bool { return waiters(t, p, k) == before+1 })
	start := time.Now()
	do()
	select {
	case at := <-got:
		return at.Sub(start)
	case <-time.After(harness.Patience):
		t.Fatal("nobody has it")
		return 0
	}
}

// waiters counts those that wait for k on the server.
func waiters(t *testing.T, p *harness.Pool, k advisory.Key) int {
	t.Helper()
	n, _ := k.Int64()
	return harness.Ask[int](t, p, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid = 0 AND objid = $1 "+
		"AND database = (SELECT oid FROM pg_database WHERE datname = current_database())", n)
}
