package xact_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/xact"
)

// A begun says how transactions begin.
type begun struct {
	name string
	o    *sql.TxOptions
	set  string // the session's default isolation level, if not the server's
}

var beginnings = []begun{
	{name: "nothing said"},
	{name: "read committed", o: &sql.TxOptions{Isolation: sql.LevelReadCommitted}},
	{name: "repeatable read", o: &sql.TxOptions{Isolation: sql.LevelRepeatableRead}},
	{name: "serializable", o: &sql.TxOptions{Isolation: sql.LevelSerializable}},
	{name: "repeatable read by default", set: "repeatable read"},
	{name: "serializable by default", set: "serializable"},
	{name: "read committed against the default", o: &sql.TxOptions{Isolation: sql.LevelReadCommitted}, set: "serializable"},
}

// fresh reports whether each statement sees what was committed before it.
func (b begun) fresh() bool {
	return b.o == nil && b.set == "" || b.o != nil && b.o.Isolation == sql.LevelReadCommitted
}

// eachBeginning runs a subtest for each driver and each way to begin, with an empty
// table of numbers.
func eachBeginning(t *testing.T, test func(t *testing.T, p *harness.Pool, b begun)) {
	harness.EachDriverAtOnce(t, func(t *testing.T, p *harness.Pool) {
		table(p, t)
		for _, b := range beginnings {
			t.Run(b.name, func(t *testing.T) {
				harness.DoSQL(t, p, "TRUNCATE numbers")
				test(t, b.pool(t, p), b)
			})
		}
	})
}

func table(p *harness.Pool, t testing.TB) {
	t.Helper()
	harness.DoSQL(t, p, "CREATE TABLE numbers (n int)")
}

// pool returns a pool of b's sessions, on the database of p.
func (b begun) pool(t testing.TB, p *harness.Pool) *harness.Pool {
	t.Helper()
	url := p.Url
	if b.set != "" {
		url = harness.WithParameter(t, url, "default_transaction_isolation", b.set)
	}
	p = p.By.Open(t, url)
	if b.set != "" && harness.Ask[string](t, p, "SHOW transaction_isolation") != b.set {
		t.Fatal("the default isolation level is not what it should be")
	}
	return p
}

// next reads the highest number and inserts the next. Two that read the same were
// not one after the other, or the second has not seen what the first committed.
func next(ctx context.Context, tx xact.Tx) error {
	n, err := highest(ctx, tx)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, fmt.Sprint("INSERT INTO numbers VALUES (", n+1, ")"))
	return err
}

func highest(ctx context.Context, tx xact.Tx) (n int, err error) {
	rows, err := tx.QueryContext(ctx, "SELECT coalesce(max(n), 0) FROM numbers")
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	rows.Next()
	if err := rows.Scan(&n); err != nil {
		return 0, err
	}
	return n, rows.Err()
}

// The server lets go of a lock a moment before it notes that the serializable
// transaction has ended, and so may see a conflict with the next that is none.
const serializationFailure = "40001"

// inTurns has some workers take n turns, all in all, and returns how many numbers
// were inserted twice.
func inTurns(p *harness.Pool, t testing.TB, n int, turn func(ctx context.Context) error) (twice int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*harness.Patience)
	defer cancel()
	var left, again atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := turn(ctx); lockfn.SQLState(err) == serializationFailure {
					again.Add(1)
					left.Add(1)
				} else if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if again.Load() > 0 {
		t.Logf("%d of %d turns were repeated after a serialization failure", again.Load(), n)
	}
	if all := harness.Ask[int](t, p, "SELECT count(*) FROM numbers"); all%n != 0 {
		t.Errorf("%d numbers after %d turns", all, n)
	}
	return harness.Ask[int](t, p, "SELECT count(*) - count(DISTINCT n) FROM numbers")
}

// The work sees what the last holder committed.
func TestDoReadsWhatTheLastHolderCommitted(t *testing.T) {
	pgtest.Slow(t)
	var r harness.Recorder
	t.Cleanup(func() {
		if !slices.Contains(r.Kinds(), advisory.Waiting) {
			t.Error("nobody asked for the holders")
		}
	})
	eachBeginning(t, func(t *testing.T, p *harness.Pool, b begun) {
		n := 20 * harness.Rounds(t)
		if twice := inTurns(p, t, n, func(ctx context.Context) error {
			return p.TxDo(ctx, harness.Key, next, xact.TxOptions(b.o))
		}); twice > 0 {
			t.Errorf("Do: stale in %d of %d turns", twice, n)
		}
		// A query for the holders, in the middle of the wait, has a snapshot too.
		if twice := inTurns(p, t, n, func(ctx context.Context) error {
			return p.TxDo(ctx, harness.Key, next, xact.TxOptions(b.o), advisory.WithObserver(&r), advisory.WithWaitingAfter(time.Microsecond))
		}); twice > 0 {
			t.Errorf("Do, asking for the holders: stale in %d of %d turns", twice, n)
		}
		if twice := inTurns(p, t, n, func(ctx context.Context) error {
			for {
				ran, err := p.TxTryDo(ctx, harness.Key, next, xact.TxOptions(b.o))
				if ran || err != nil {
					return err
				}
				time.Sleep(rand.N(2 * time.Millisecond))
			}
		}); twice > 0 {
			t.Errorf("TryDo: stale in %d of %d turns", twice, n)
		}
	})
}

// The same check sees a lock that is taken by hand at the begin of the transaction.
func TestLockByHandReadsStaleData(t *testing.T) {
	repeatable := &sql.TxOptions{Isolation: sql.LevelRepeatableRead}
	for name, lock := range map[string]string{
		"wait": "SELECT 1 FROM pg_advisory_xact_lock(4820)",
		"try":  "SELECT 1 WHERE pg_try_advisory_xact_lock(4820)",
	} {
		t.Run(name, func(t *testing.T) {
			p := harness.Drivers[0].Open(t, pgtest.URL(t))
			table(p, t)
			turns, twice := 0, 0
			for end := time.Now().Add(harness.Patience); twice == 0 && time.Now().Before(end); {
				const n = 60
				turns += n
				twice = inTurns(p, t, n, func(ctx context.Context) error {
					for {
						tx, err := p.NewTx(ctx, repeatable)
						if err != nil {
							return err
						}
						defer tx.Rollback()
						r, err := tx.ExecContext(ctx, lock)
						if err != nil {
							return err
						}
						if got, _ := r.RowsAffected(); got == 0 {
							tx.Rollback()
							continue
						}
						if err := next(ctx, tx); err != nil {
							return err
						}
						return tx.Commit()
					}
				})
			}
			t.Logf("stale in %d of %d turns", twice, turns)
			if twice == 0 {
				t.Error("the check does not see stale reads")
			}
		})
	}
}

// Readers share the lock, in transactions that may not write.
func TestReadersSeeWhatTheLastWriterCommitted(t *testing.T) {
	pgtest.Slow(t)
	eachBeginning(t, func(t *testing.T, p *harness.Pool, b begun) {
		o := sql.TxOptions{ReadOnly: true}
		if b.o != nil {
			o.Isolation = b.o.Isolation
		}
		var wg sync.WaitGroup
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		defer cancel()
		var written atomic.Int64 // changes only while its writer has the lock
		writing, stop := context.WithCancel(ctx)
		for range 2 {
			wg.Go(func() {
				for writing.Err() == nil {
					err := p.TxDo(ctx, harness.Key, func(ctx context.Context, tx xact.Tx) error {
						written.Add(1)
						return next(ctx, tx)
					}, xact.TxOptions(&sql.TxOptions{Isolation: sql.LevelReadCommitted}))
					if err != nil {
						t.Errorf("a writer: %v", err)
						return
					}
					time.Sleep(rand.N(time.Millisecond))
				}
			})
		}
		var readers sync.WaitGroup
		for range 3 {
			readers.Go(func() {
				for range 5 * harness.Rounds(t) {
					err := p.TxDo(ctx, harness.Key, func(ctx context.Context, tx xact.Tx) error {
						n, err := highest(ctx, tx)
						if want := written.Load(); err == nil && int64(n) != want {
							t.Errorf("a reader sees %d, written is %d", n, want)
						}
						return err
					}, advisory.Shared, xact.TxOptions(&o))
					if err != nil {
						t.Errorf("a reader: %v", err)
						return
					}
				}
			})
		}
		readers.Wait()
		stop()
		wg.Wait()
	})
}
