package locker_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/proxy"
	"github.com/pgadvisory/pgadvisory/locker"
)

const aloneVar = "PGADVISORY_TEST_ALONE"

// alone runs the test once more, in a process that runs nothing else, and is false in
// there.
func alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(aloneVar) != "" {
		return false
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), aloneVar+"=1", "PGADVISORY_TEST_SERVER=url", "DATABASE_URL="+pgtest.SharedServer(t).URL())
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	return true
}

// useAll makes some of each call, of which none is under way when it returns. Those that
// wait end with their contexts.
func useAll(t *testing.T, l, other *locker.Locker) {
	t.Helper()
	background := context.Background()
	// A wait, for l may be about to give back what one of its waits got too late.
	busy, err := other.Lock(background, harness.Key)
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Unlock()
	ctx, cancel := context.WithTimeout(background, 100*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	ends := func(err error) {
		t.Helper()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	for range 5 {
		wg.Go(func() { _, err := l.Lock(ctx, harness.Key); ends(err) })
		wg.Go(func() { _, err := l.LockAll(ctx, []advisory.Key{harness.Key, advisory.Int64(1)}); ends(err) })
		wg.Go(func() { _, err := l.LockAny(ctx, []advisory.Key{harness.Key}, advisory.Shared); ends(err) })
		wg.Go(func() { ends(l.Lead(ctx, harness.Key, func(context.Context) error { return nil })) })
		wg.Go(func() {
			must(l.Semaphore(advisory.Int64(2), 2).Do(background, func(context.Context) error { return nil }))
		})
		wg.Go(func() {
			must(l.Do(background, advisory.Int64(3), func(context.Context) error { return nil }, locker.HoldAtLeast(time.Millisecond)))
		})
	}
	wg.Wait()
	lock, _ := harness.LockerTry(t, l, advisory.Int64(4))
	must(lock.Downgrade(background))
	must(lock.Unlock())
	must(l.Ping(background))
}

// No goroutine is left of a call that has ended, in whatever way, nor of a Locker that is
// closed; but of calls into a driver that does not return, for as long as the link is dead.
func TestLockerLeavesNoGoroutine(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	if alone(t) {
		return
	}
	for _, d := range harness.Drivers[:2] {
		p := d.Open(t, pgtest.URL(t))
		p.SetMaxIdleConns(0) // idle connections have goroutines, too
		none := func(t *testing.T, before goleak.Option) {
			t.Helper()
			var err error
			for end := time.Now().Add(harness.Patience); time.Now().Before(end); {
				if err = goleak.Find(before); err == nil { // it waits a little, too
					return
				}
			}
			t.Error(err)
		}
		case_ := func(name string, test func(t *testing.T)) { t.Run(d.Name+"/"+name, test) }
		case_("calls", func(t *testing.T) {
			l, other := p.Locker(t), p.Locker(t)
			useAll(t, l, other) // opens the sessions
			before := goleak.IgnoreCurrent()
			useAll(t, l, other)
			none(t, before)
		})
		case_("Close", func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			l, other := locker.New(p.DB), locker.New(p.DB)
			useAll(t, l, other)
			harness.LockerTry(t, l, harness.Key) // held
			go other.Lock(context.Background(), harness.Key)
			harness.Eventually(t, "one waits", func() bool { return other.Stats().Waiting == 1 })
			for _, l := range []*locker.Locker{other, l} {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
			none(t, before)
		})
		case_("no server", func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			p := d.Open(t, "postgres://127.0.0.1:1/none?sslmode=disable")
			l := locker.New(p.DB) // not closed
			if _, _, err := l.TryLock(context.Background(), harness.Key); err == nil {
				t.Error("TryLock: no error")
			}
			if _, err := l.Lock(context.Background(), harness.Key, advisory.MaxWait(200*time.Millisecond)); err == nil {
				t.Error("Lock: no error")
			}
			p.Close()
			none(t, before)
		})
		case_("loss", func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			l := locker.New(p.DB, locker.WithApplicationName("lost"))
			lock, _ := harness.LockerTry(t, l, harness.Key)
			harness.DoSQL(t, p, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'lost'")
			<-lock.Context().Done()
			none(t, before) // its session is gone, though it is not closed, nor the lock unlocked
		})
		case_("dead link", func(t *testing.T) {
			url := p.Url
			p, link := d.Proxied(t, url)
			p.SetMaxIdleConns(0)
			before := goleak.IgnoreCurrent()
			l := locker.New(p.DB, locker.WithFailover(harness.QuickFailover))
			lock, _ := harness.LockerTry(t, l, harness.Key)
			link.Freeze(proxy.Both)
			<-lock.Context().Done()
			lock.Unlock()
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			if _, err := l.Lock(ctx, harness.Key); !harness.IsNotAcquired(err) {
				t.Error(err)
			}
			start := time.Now()
			err := l.Close()
			t.Logf("Close on the dead link: %v, %v; %d goroutines are in a driver", harness.Round(time.Since(start)), err, inDrivers())
			link.Thaw()
			link.CutAll()
			none(t, before)
		})
	}
}

// inDrivers counts the goroutines that are in a driver.
func inDrivers() (n int) {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for s := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(s, "lib/pq.") || strings.Contains(s, "jackc/") {
			n++
		}
	}
	return n
}
