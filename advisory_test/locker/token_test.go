//go:build unix

package locker_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// tokenKeys is how many keys the processes of a token test compete for.
const tokenKeys = 400

// A tokenBook is memory that processes share: for each key the highest token that
// any holder has had so far, and the highest of one that held exclusively.
type tokenBook [tokenKeys]struct{ any, exclusive atomic.Uint64 }

func openTokenBook(path string) (*tokenBook, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := int(unsafe.Sizeof(tokenBook{}))
	if err := f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	memory, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*tokenBook)(unsafe.Pointer(&memory[0])), nil
}

func raise(v *atomic.Uint64, to uint64) {
	for old := v.Load(); old < to && !v.CompareAndSwap(old, to); old = v.Load() {
	}
}

// enter writes a holder's token down, while it holds. before is the highest token that
// had been given when it asked for the lock: those are of earlier holders.
func (b *tokenBook) enter(k int, m advisory.Mode, token, before uint64) error {
	earlier := max(before, b[k].exclusive.Load())
	if m == advisory.Exclusive {
		earlier = b[k].any.Load() // nobody else holds now
		raise(&b[k].exclusive, token)
	}
	raise(&b[k].any, token)
	if token <= earlier {
		return fmt.Errorf("key %d (%v): token %d after %d", k, m, token, earlier)
	}
	return nil
}

func init() { harness.Jobs["tokens"] = tokenJob }

// tokenJob takes locks with tokens as quickly as it can and checks each.
func tokenJob(o harness.Order) error {
	seconds, err := strconv.Atoi(o.Args[1])
	if err != nil {
		return err
	}
	book, err := openTokenBook(o.Args[0])
	if err != nil {
		return err
	}
	db, err := o.Open()
	if err != nil {
		return err
	}
	l := locker.New(db, locker.WithFencing())
	if err := l.Ping(context.Background()); err != nil {
		return err
	}
	fmt.Println("ready")
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second)
	defer cancel()
	var taken, local, shared atomic.Int64
	count := advisory.WithObserver(harness.Observed(func(e advisory.Event) {
		if e.Kind == advisory.Acquired && e.Local {
			local.Add(1)
		}
	}))
	errs := make(chan error, 64)
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			for ctx.Err() == nil {
				k, m := rand.N(tokenKeys), advisory.Exclusive
				if g%4 == 0 {
					k = rand.N(4) // a few that many wait for
				}
				if rand.N(4) == 0 {
					m = advisory.Shared
				}
				before := book[k].any.Load()
				var lock advisory.Lock
				var err error
				ok := true
				if rand.N(2) == 0 {
					lock, err = l.Lock(ctx, advisory.Int64(int64(k)), m, advisory.MaxWait(time.Second), count)
				} else {
					lock, ok, err = l.TryLock(ctx, advisory.Int64(int64(k)), m, count)
				}
				if errors.Is(err, advisory.ErrNotAcquired) || err == nil && !ok || ctx.Err() != nil {
					if err == nil && ok {
						lock.Unlock()
					}
					continue
				}
				if err == nil {
					err = cmp.Or(book.enter(k, m, lock.Token(), before), lock.Unlock())
				}
				if err != nil {
					errs <- err
					return
				}
				taken.Add(1)
				if m == advisory.Shared {
					shared.Add(1)
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
	}
	fmt.Printf("took %d locks, %d of them shared, %d within the process\n", taken.Load(), shared.Load(), local.Load())
	return l.Close()
}

// Tokens only grow, per key, over holders in several processes. It goes on for
// PGADVISORY_TOKEN_SECONDS.
func TestTokensOnlyGrow(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	seconds := harness.Number(t, "PGADVISORY_TOKEN_SECONDS", 5)
	url, book := pgtest.URL(t), filepath.Join(t.TempDir(), "book")
	var workers []*harness.Peer
	for i := range 3 {
		o := harness.Order{Job: "tokens", Driver: harness.Drivers[i%2].Sql, URL: url, Args: []string{book, fmt.Sprint(seconds)}}
		workers = append(workers, o.Start(t))
	}
	for i, w := range workers {
		t.Logf("%s: took %s", harness.Drivers[i%2].Name, w.Says("took ", time.Duration(seconds)*time.Second+harness.Patience))
	}
}

// A server that crashes right after it gave out tokens gives out none of them again, nor
// smaller ones. It crashes PGADVISORY_CRASHES times.
func TestTokensGrowOverCrashes(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t, "fsync=on", "full_page_writes=on")
	on, off := server.Database(t), server.Database(t)
	func() {
		db := harness.Drivers[0].Open(t, off)
		harness.DoSQL(t, db, fmt.Sprintf("ALTER DATABASE %s SET synchronous_commit = off", harness.Ask[string](t, db, "SELECT current_database()")))
	}()
	var last uint64 // the highest token that was given before a crash
	for round := range harness.Number(t, "PGADVISORY_CRASHES", 3) {
		var highest, given atomic.Uint64
		var wg sync.WaitGroup
		for i, url := range []string{on, off} {
			p := harness.Drivers[(round+i)%2].Open(t, url)
			if i == 1 && harness.Ask[string](t, p, "SHOW synchronous_commit") != "off" {
				t.Fatal("synchronous_commit is not off")
			}
			l := locker.New(p.DB, locker.WithFencing())
			defer l.Close()
			for g := range 8 {
				wg.Go(func() {
					for own := last; ; {
						lock, _, err := l.TryLock(context.Background(), advisory.Int64(int64(g)))
						if err != nil {
							return // the crash
						}
						if lock.Token() <= own {
							t.Errorf("round %d: token %d after %d (%d before the crash)", round, lock.Token(), own, last)
						}
						own = lock.Token()
						raise(&highest, own)
						given.Add(1)
						lock.Unlock()
					}
				})
			}
		}
		harness.Eventually(t, "tokens are given", func() bool { return given.Load() > 100 })
		time.Sleep(rand.N(50 * time.Millisecond))
		if err := server.Crash(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		t.Logf("round %d: %d tokens, up to %d", round, given.Load(), highest.Load())
		last = highest.Load()
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
	}
}
