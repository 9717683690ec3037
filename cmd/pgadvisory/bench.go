package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/locker"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

var benchCommand = &command{
	name:    "bench",
	args:    "[flags]",
	summary: "measures how fast locks are on this server, with plain SQL and with the library",
	help: `
It takes locks that nobody else uses, for one second in each way, and prints the number of pairs of lock
and unlock. Plain SQL is SELECT pg_try_advisory_lock($1), with the driver pgx.

  pgadvisory bench
`,
	setup: func(p *program, flags *flag.FlagSet) func(context.Context, []string) error {
		t := connection(flags)
		long := seconds{Duration: time.Second}
		flags.Var(&long, "for", "measure each way for so many `SECONDS`")
		return func(ctx context.Context, args []string) error {
			if err := noArgs("bench", args); err != nil {
				return err
			}
			if long.Duration < time.Millisecond || long.Duration > time.Hour {
				return usage("bench: --for %v: give a time from 1ms to 1h", long.Duration)
			}
			db, err := t.open(ctx, "pgadvisory bench")
			if err != nil {
				return err
			}
			defer db.Close()
			return p.bench(ctx, db, long.Duration)
		}
	},
}

const crowd = 64

// A way is one way to lock and unlock.
type way struct {
	name string
	n    int // goroutines
	pair func(ctx context.Context, key advisory.Key) error
}

func (p *program) bench(ctx context.Context, db *sql.DB, long time.Duration) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	locker := locker.New(db)
	defer locker.Close()
	base := rand.Text()

	t := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tpairs/s\tmedian\t99 of 100\t")
	for _, w := range []way{
		{"plain SQL, on one connection", 1, func(ctx context.Context, key advisory.Key) error { return byPlainSQL(ctx, conn, key) }},
		{"sqlconn, on one connection", 1, func(ctx context.Context, key advisory.Key) error { return onConn(ctx, conn, key) }},
		{"xact.TryDo, a transaction each", 1, func(ctx context.Context, key advisory.Key) error { return inTx(ctx, db, key) }},
		{"a Locker", 1, func(ctx context.Context, key advisory.Key) error { return byLocker(ctx, locker, key) }},
		{fmt.Sprintf("a Locker, %d goroutines", crowd), crowd, func(ctx context.Context, key advisory.Key) error { return byLocker(ctx, locker, key) }},
	} {
		all, err := measure(ctx, w, base, long)
		if err != nil {
			return err
		}
		slices.Sort(all)
		fmt.Fprintf(t, "%s\t%.0f\t%v\t%v\t\n", w.name, float64(len(all))/long.Seconds(),
			all[len(all)/2].Round(time.Microsecond), all[len(all)*99/100].Round(time.Microsecond))
	}
	return t.Flush()
}

// measure returns how long each pair took.
func measure(ctx context.Context, w way, base string, long time.Duration) ([]time.Duration, error) {
	key := advisory.Name("pgadvisory bench", base, "first")
	if err := w.pair(ctx, key); err != nil { // this opens connections and prepares statements
		return nil, err
	}
	var mu sync.Mutex
	var all []time.Duration
	var errs error
	var wait sync.WaitGroup
	end := time.Now().Add(long)
	for i := range w.n {
		wait.Go(func() {
			key := advisory.Name("pgadvisory bench", base, fmt.Sprint(i))
			var own []time.Duration
			var err error
			for start := time.Now(); err == nil && (start.Before(end) || len(own) == 0); {
				err = w.pair(ctx, key)
				now := time.Now()
				own = append(own, now.Sub(start))
				start = now
			}
			mu.Lock()
			defer mu.Unlock()
			all, errs = append(all, own...), errors.Join(errs, err)
		})
	}
	wait.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	return all, errs
}

func byPlainSQL(ctx context.Context, conn *sql.Conn, key advisory.Key) error {
	n, _ := key.Int64()
	for _, text := range []string{"SELECT pg_catalog.pg_try_advisory_lock($1)", "SELECT pg_catalog.pg_advisory_unlock($1)"} {
		var ok bool
		if err := conn.QueryRowContext(ctx, text, n).Scan(&ok); err != nil {
			return err
		}
	}
	return nil
}

func onConn(ctx context.Context, conn *sql.Conn, key advisory.Key) error {
	if ok, err := sqlconn.TryLock(ctx, conn, key); err != nil || !ok {
		return err
	}
	return sqlconn.Unlock(ctx, conn, key)
}

func inTx(ctx context.Context, db *sql.DB, key advisory.Key) error {
	_, err := xact.TryDo(ctx, db.BeginTx, key, func(context.Context, *sql.Tx) error { return nil })
	return err
}

func byLocker(ctx context.Context, locker *locker.Locker, key advisory.Key) error {
	lock, ok, err := locker.TryLock(ctx, key)
	if err != nil || !ok {
		return err
	}
	return lock.Unlock()
}
