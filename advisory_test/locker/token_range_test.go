//go:build unix

package locker_test

import (
	"context"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// At the ends of their range tokens are right, and past them every call fails and leaves no lock
// behind. No token begins again from below.
func TestTokensAtTheEndsOfTheirRange(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t)
	if server.Kind() != "binaries" {
		t.Skip("the data folder of this server is out of reach")
	}
	url := server.Database(t)
	reset := func(args ...string) {
		t.Helper()
		if err := server.Stop("fast"); err != nil {
			t.Fatal(err)
		}
		server.ResetWAL(t, args...)
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
	}
	each := func(what string, test func(t *testing.T, p *harness.Pool)) {
		for _, d := range harness.Drivers[:2] {
			t.Run(what+", "+d.Name, func(t *testing.T) { test(t, d.Open(t, url)) })
		}
	}
	within := func(from, to uint64) func(*testing.T, *harness.Pool) {
		return func(t *testing.T, p *harness.Pool) {
			l := p.Locker(t, locker.WithFencing())
			last := from - 1
			for range 3 {
				lock, ok := harness.LockerTry(t, l, harness.Key)
				if !ok || lock.Token() <= last || lock.Token() > to {
					t.Fatalf("token %#x after %#x, and at most %#x is right", lock.Token(), last, to)
				}
				last = lock.Token()
				if err := lock.Unlock(); err != nil {
					t.Error(err)
				}
			}
		}
	}

	each("a new server", within(1<<48, 1<<48+1<<32))
	reset("-e", "65535")
	each("ids of 48 bits", within(2<<48-1<<32, 2<<48-1))

	reset("-e", "65536")
	each("ids of 49 bits", func(t *testing.T, p *harness.Pool) {
		ctx := context.Background()
		l := p.Locker(t, locker.WithFencing())
		refused := func(call string, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), "there is no fencing token: the transaction id 2814749") {
				t.Errorf("%s: %v", call, err)
			}
			p.NoLocks(t)
		}
		refused("TryLock", harness.Third(l.TryLock(ctx, harness.Key)))
		refused("Lock", harness.Second(l.Lock(ctx, harness.Key)))
		refused("LockAll", harness.Second(l.LockAll(ctx, []advisory.Key{harness.Key, advisory.Pair(1, 2)})))
		refused("TryLockAny", harness.Third(l.TryLockAny(ctx, []advisory.Key{harness.Key, advisory.Pair(1, 2)})))
		refused("Lead", l.Lead(ctx, harness.Key, func(context.Context) error { return nil }))

		other := p.NewConn(t)
		harness.TryLock(t, other, harness.Key)
		waits := make(chan error)
		go func() { waits <- harness.Second(l.Lock(ctx, harness.Key)) }()
		harness.Eventually(t, "it waits", func() bool { _, waiting := p.Locks(t); return waiting == 1 })
		harness.Unlock(t, other, harness.Key)
		refused("a Lock that waited", <-waits)

		if lock, ok := harness.LockerTry(t, p.Locker(t), harness.Key); !ok || lock.Unlock() != nil {
			t.Error("without tokens it fails")
		}
	})

	reset("-e", "0", "-l", "00009C400000000000000010")
	each("a timeline beyond int8", within(40000<<48, 40000<<48+1<<32))
	reset("-l", "000100000000000000000020")
	each("a timeline of 17 bits", func(t *testing.T, p *harness.Pool) {
		for call, err := range map[string]error{
			"Ping":    p.Locker(t, locker.WithFencing()).Ping(t.Context()),
			"TryLock": harness.Third(p.Locker(t, locker.WithFencing()).TryLock(t.Context(), harness.Key)),
		} {
			if err == nil || !strings.Contains(err.Error(), "there is no fencing token: timeline 65536 and WithTokenEpoch(0) add up to 65536, and at most 65535 fits") {
				t.Errorf("%s: %v", call, err)
			}
		}
	})
}
