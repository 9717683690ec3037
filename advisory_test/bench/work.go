package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pressly/goose/v3/lock"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/locker"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

var errNotTaken = errors.New("not taken")

var measurements = []measurement{
	{
		name: "try and unlock on a connection", against: "the same with $1", target: 1 / 0.5, driver: "lib/pq",
		prepare: onConn(func(int) int64 { return 4820 }),
	},
	{
		name: "try and unlock on a connection", against: "the same with $1", target: 1 / 0.9, driver: "pgx",
		prepare: onConn(func(int) int64 { return 4820 }),
	},
	{
		name: "the same, ever-new keys", against: "the same with $1", target: 1 / 0.5, driver: "lib/pq",
		prepare: onConn(func(i int) int64 { return int64(i) }),
	},
	{
		name: "the same, ever-new keys", against: "the same with $1", target: 1 / 0.9, driver: "pgx",
		prepare: onConn(func(i int) int64 { return int64(i) }),
	},
	{name: "one goroutine through a Locker", against: "a pinned connection, $1", target: 1 / 0.55, driver: "lib/pq", prepare: alone},
	{name: "one goroutine through a Locker", against: "a pinned connection, $1", target: 1, driver: "pgx", prepare: alone},
	{name: "xact.TryDo without work", against: "BEGIN, try with $1, COMMIT", target: 1, driver: "lib/pq", prepare: transaction},
	{name: "xact.TryDo without work", against: "BEGIN, try with $1, COMMIT", target: 1 / 1.05, driver: "pgx", prepare: transaction},
	{name: "4 goroutines, own keys", against: "a native pgx pool of 4, prepared", target: 1, prepare: few},
	{name: "256 goroutines, own keys", against: "a pool of 16 connections", target: 10, driver: "lib/pq", prepare: ownKeys},
	{name: "256 goroutines, own keys", against: "a pool of 16 connections", target: 5, driver: "pgx", prepare: ownKeys},
	{name: "256 goroutines, own keys", against: "a native pgx pool of 16, try and unlock as one batch", target: 3.5, prepare: batches},
	{name: "64 goroutines, one key", against: "pg_advisory_lock on 16 connections", target: 20, prepare: oneKey},
	{name: "LockAll of 100 keys", against: "one by one", target: 10, prepare: hundred},
	{name: "handover between processes", against: "pg_advisory_lock", target: 0.5, prepare: handover(blocking)},
	{name: "handover between processes", against: "polling every 100 ms", target: 20, prepare: handover(polling)},
	{name: "handover between processes", against: "goose's session locker (1 s)", target: 20, prepare: handover(goose)},
}

const tryByHand, unlockByHand = "SELECT pg_try_advisory_lock($1)", "SELECT pg_advisory_unlock($1)"

func byHand(ctx context.Context, c interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}, text string, key int64,
) error {
	var ok bool
	if err := c.QueryRowContext(ctx, text, key).Scan(&ok); err != nil {
		return err
	}
	if !ok {
		return errNotTaken
	}
	return nil
}

func onConn(key func(i int) int64) func(context.Context, *env) (ours, hand func() (time.Duration, error), err error) {
	return func(ctx context.Context, e *env) (ours, hand func() (time.Duration, error), err error) {
		a, err := e.open().Conn(ctx)
		if err != nil {
			return nil, nil, err
		}
		e.defers(func() { a.Close() })
		b, err := e.open().Conn(ctx)
		if err != nil {
			return nil, nil, err
		}
		e.defers(func() { b.Close() })
		const n = 1000
		var i, j int
		return func() (time.Duration, error) {
				return each(n, func(int) error {
					i++
					k := advisory.Int64(key(i))
					if ok, err := sqlconn.TryLock(ctx, a, k); !ok || err != nil {
						return errors.Join(errNotTaken, err)
					}
					return sqlconn.Unlock(ctx, a, k)
				})
			}, func() (time.Duration, error) {
				return each(n, func(int) error {
					j++
					if err := byHand(ctx, b, tryByHand, key(j)); err != nil {
						return err
					}
					return byHand(ctx, b, unlockByHand, key(j))
				})
			}, nil
	}
}

func transaction(ctx context.Context, e *env) (ours, hand func() (time.Duration, error), err error) {
	a, b := e.open(), e.open()
	const n = 1000
	return func() (time.Duration, error) {
			return each(n, func(int) error {
				ran, err := xact.TryDo(ctx, a.BeginTx, advisory.Int64(1), func(context.Context, *sql.Tx) error { return nil })
				if !ran {
					return errors.Join(errNotTaken, err)
				}
				return err
			})
		}, func() (time.Duration, error) {
			return each(n, func(int) error {
				tx, err := b.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				if err := byHand(ctx, tx, "SELECT pg_try_advisory_xact_lock($1)", 2); err != nil {
					return err
				}
				return tx.Commit()
			})
		}, nil
}

// goroutines shares n operations among many.
func goroutines(many, n int, do func(g int) error) (time.Duration, error) {
	var (
		wg   sync.WaitGroup
		next atomic.Int64
		mu   sync.Mutex
		errs []error
	)
	start := time.Now()
	for g := range many {
		wg.Go(func() {
			for next.Add(1) <= int64(n) {
				if err := do(g); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start) / time.Duration(n), errors.Join(errs...)
}

// pool16 is a pool of pinned connections, each for one goroutine at a time.
func pool16(ctx context.Context, e *env) (chan *sql.Conn, error) {
	db := e.open()
	conns := make(chan *sql.Conn, 16)
	for range cap(conns) {
		c, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		e.defers(func() { c.Close() })
		conns <- c
	}
	return conns, nil
}

// throughLocker times n pairs of try and unlock of many goroutines, each on a key of its own.
func throughLocker(ctx context.Context, e *env, many, n int) func() (time.Duration, error) {
	l := locker.New(e.open())
	e.defers(func() { l.Close() })
	return func() (time.Duration, error) {
		return goroutines(many, n, func(g int) error {
			lock, ok, err := l.TryLock(ctx, advisory.Int64(int64(g)))
			if !ok {
				return errors.Join(errNotTaken, err)
			}
			return lock.Unlock()
		})
	}
}

func alone(ctx context.Context, e *env) (ours, hand func() (time.Duration, error), err error) {
	c, err := e.open().Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	e.defers(func() { c.Close() })
	const n = 1000
	return throughLocker(ctx, e, 1, n), func() (time.Duration, error) {
		return each(n, func(int) error {
			if err := byHand(ctx, c, tryByHand, 1000); err != nil {
				return err
			}
			return byHand(ctx, c, unlockByHand, 1000)
		})
	}, nil
}

func ownKeys(ctx context.Context, e *env) (ours, hand func() (time.Duration, error), err error) {
	conns, err := pool16(ctx, e)
	return throughLocker(ctx, e, 256, 50_000), func() (time.Duration, error) {
		return goroutines(256, 10_000, func(g int) error {
			c := <-conns
			defer func() { conns <- c }()
			if err := byHand(ctx, c, tryByHand, int64(g+1000)); err != nil {
				return err
			}
			return byHand(ctx, c, unlockByHand, int64(g+1000))
		})
	}, err
}

func oneKey(ctx context.Context, e *env) (ours, hand func() (time.Duration, error), err error) {
	l := locker.New(e.open())
	e.defers(func() { l.Close() })
	conns, err := pool16(ctx, e)
	return func() (time.Duration, error) {
			return goroutines(64, 50_000, func(int) error {
				lock, err := l.Lock(ctx, advisory.Int64(1))
				if err != nil {
					return err
				}
				return lock.Unlock()
			})
		}, func() (time.Duration, error) {
			return goroutines(64, 2_000, func(int) error {
				c := <-conns
				defer func() { conns <- c }()
				if _, err := c.ExecContext(ctx, "SELECT pg_advisory_lock($1)", 2); err != nil {
					return err
				}
				return byHand(ctx, c, unlockByHand, 2)
			})
		}, err
}

func hundred(ctx context.Context, e *env) (ours, hand func() (time.Duration, error), err error) {
	l := locker.New(e.open())
	e.defers(func() { l.Close() })
	var keys []advisory.Key
	for i := range 100 {
		keys = append(keys, advisory.Int64(int64(i)))
	}
	c, err := e.open().Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	e.defers(func() { c.Close() })
	// The locking alone is measured.
	return func() (time.Duration, error) {
			var total time.Duration
			for range 20 {
				start := time.Now()
				locks, err := l.LockAll(ctx, keys)
				total += time.Since(start)
				if err != nil {
					return 0, err
				}
				if err := locks.Unlock(); err != nil {
					return 0, err
				}
			}
			return total / 20, nil
		}, func() (time.Duration, error) {
			var total time.Duration
			for range 20 {
				start := time.Now()
				for i := range keys {
					if err := byHand(ctx, c, tryByHand, int64(1000+i)); err != nil {
						return 0, err
					}
				}
				total += time.Since(start)
				if _, err := c.ExecContext(ctx, "SELECT pg_advisory_unlock_all()"); err != nil {
					return 0, err
				}
			}
			return total / 20, nil
		}, nil
}

// A way is one to wait for a lock and to release it, in a process of its own.
type way struct {
	lock, unlock func() error
}

// handover is the median time from the beginning of a release in one process to the return
// of the wait for it in another. A process is a pool and a Locker of its own.
func handover(other func(ctx context.Context, e *env) (holder, waiter way, rounds int, err error)) func(context.Context, *env) (ours, hand func() (time.Duration, error), err error) {
	return func(ctx context.Context, e *env) (ours, hand func() (time.Duration, error), err error) {
		lockerWay := func() way {
			l := locker.New(e.open())
			e.defers(func() { l.Close() })
			var lock advisory.Lock
			return way{
				lock: func() (err error) {
					lock, err = l.Lock(ctx, advisory.Int64(1))
					return err
				},
				unlock: func() error { return lock.Unlock() },
			}
		}
		holder, waiter, rounds, err := other(ctx, e)
		if err != nil {
			return nil, nil, err
		}
		a, b := lockerWay(), lockerWay()
		return func() (time.Duration, error) { return handOver(a, b, 15) },
			func() (time.Duration, error) { return handOver(holder, waiter, rounds) }, nil
	}
}

func handOver(holder, waiter way, rounds int) (time.Duration, error) {
	var times []time.Duration
	for i := range rounds {
		if err := holder.lock(); err != nil {
			return 0, err
		}
		type answer struct {
			at  time.Time
			err error
		}
		got := make(chan answer, 1)
		go func() {
			err := waiter.lock()
			got <- answer{time.Now(), err}
		}()
		// Long enough to be waiting, and not in step with any poll.
		time.Sleep(60*time.Millisecond + time.Duration(i*7)*time.Millisecond)
		start := time.Now()
		if err := holder.unlock(); err != nil {
			return 0, err
		}
		a := <-got
		if a.err != nil {
			return 0, a.err
		}
		times = append(times, a.at.Sub(start))
		if err := waiter.unlock(); err != nil {
			return 0, err
		}
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// twoConns are pinned connections of two pools.
func twoConns(ctx context.Context, e *env) (a, b *sql.Conn, err error) {
	for _, c := range []**sql.Conn{&a, &b} {
		if *c, err = e.open().Conn(ctx); err != nil {
			return nil, nil, err
		}
		conn := *c
		e.defers(func() { conn.Close() })
	}
	return a, b, nil
}

func blocking(ctx context.Context, e *env) (holder, waiter way, rounds int, err error) {
	a, b, err := twoConns(ctx, e)
	w := func(c *sql.Conn) way {
		return way{
			lock: func() error {
				_, err := c.ExecContext(ctx, "SELECT pg_advisory_lock($1)", 2)
				return err
			},
			unlock: func() error { return byHand(ctx, c, unlockByHand, 2) },
		}
	}
	return w(a), w(b), 15, err
}

func polling(ctx context.Context, e *env) (holder, waiter way, rounds int, err error) {
	a, b, err := twoConns(ctx, e)
	w := func(c *sql.Conn) way {
		return way{
			lock: func() error {
				for {
					err := byHand(ctx, c, tryByHand, 2)
					if !errors.Is(err, errNotTaken) {
						return err
					}
					time.Sleep(100 * time.Millisecond)
				}
			},
			unlock: func() error { return byHand(ctx, c, unlockByHand, 2) },
		}
	}
	return w(a), w(b), 9, err
}

func goose(ctx context.Context, e *env) (holder, waiter way, rounds int, err error) {
	a, b, err := twoConns(ctx, e)
	if err != nil {
		return holder, waiter, 0, err
	}
	w := func(c *sql.Conn) (way, error) {
		l, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 60))
		if err != nil {
			return way{}, fmt.Errorf("goose: %w", err)
		}
		return way{
			lock:   func() error { return l.SessionLock(ctx, c) },
			unlock: func() error { return l.SessionUnlock(ctx, c) },
		}, nil
	}
	if holder, err = w(a); err == nil {
		waiter, err = w(b)
	}
	return holder, waiter, 3, err
}
