package advisory_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

func init() { jobs["lock"] = lockJob }

// lockJob waits for a lock and keeps it.
func lockJob(o order) error {
	db, err := o.open()
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
	<-orphaned()
	return l.Close()
}

// A process that is killed, as it holds or as it waits, keeps no lock: the next has it at
// once. PGADVISORY_KILLS says how often.
func TestKilledProcesses(t *testing.T) {
	t.Parallel()
	const lanes = 4
	n := number(t, "PGADVISORY_KILLS", 20)
	lag := watchLag(t)
	url := pgtest.URL(t)
	var mu sync.Mutex
	times := map[string][]time.Duration{}
	atOnce(t, func(all *together) {
		for lane := range lanes {
			d := drivers[lane%2]
			what, kill := "holder", killHolder
			if lane >= lanes/2 {
				what, kill = "waiter", killWaiter
			}
			all.run(what+" "+d.name, func(t *testing.T) {
				p := d.open(t, url)
				first, next := p.locker(t), p.locker(t)
				for i := lane; i < n; i += lanes {
					k := advisory.Int64(int64(i))
					o := order{Job: "lock", Driver: d.sql, URL: url, Args: []string{k.String()}}
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
		if late := lag.get(); median > time.Second+10*late || most > slack {
			t.Errorf("too late, on a machine that was late by up to %v: %v", late, took)
		}
	}
}

// killHolder kills a process that holds k. It returns after which time next has it.
func killHolder(t *testing.T, p *pool, _, next *locker.Locker, k advisory.Key, o order) time.Duration {
	holder := o.start(t)
	holder.says("holds", patience)
	return nextAfter(t, p, next, k, holder.kill)
}

// killWaiter kills a process that waits for k, while first holds it; then that lets go.
func killWaiter(t *testing.T, p *pool, first, next *locker.Locker, k advisory.Key, o order) time.Duration {
	lock, ok := lockerTry(t, first, k)
	if !ok {
		t.Fatal("not free")
	}
	waiter := o.start(t)
	waiter.says("waits", patience)
	eventually(t, "the process waits", func() bool { return waiters(t, p, k) == 1 })
	return nextAfter(t, p, next, k, func() {
		waiter.kill()
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// nextAfter has l wait for k, and returns how long after do it has it.
func nextAfter(t *testing.T, p *pool, l *locker.Locker, k advisory.Key, do func()) time.Duration {
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
	eventually(t, "the next waits", func() bool { return waiters(t, p, k) == before+1 })
	start := time.Now()
	do()
	select {
	case at := <-got:
		return at.Sub(start)
	case <-time.After(patience):
		t.Fatal("nobody has it")
		return 0
	}
}

// waiters counts those that wait for k on the server.
func waiters(t *testing.T, p *pool, k advisory.Key) int {
	t.Helper()
	n, _ := k.Int64()
	return ask[int](t, p, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid = 0 AND objid = $1 "+
		"AND database = (SELECT oid FROM pg_database WHERE datname = current_database())", n)
}
