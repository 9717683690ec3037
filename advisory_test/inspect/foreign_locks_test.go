package inspect_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/inspect"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/runbook"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// extensions is a pair that stands for an extension's lock: showingForeign has pg_locks
// show it as an advisory lock with classid 0, objid 4820 and objsubid 21.
var extensions = advisory.Pair(pgtest.ForeignClass, 4820)

// showingForeign opens a database, on a server of its own, whose pg_locks shows [extensions]
// as such locks are shown.
func showingForeign(t *testing.T) *harness.Pool {
	t.Helper()
	p := harness.Drivers[0].Open(t, pgtest.NewServer(t).Database(t))
	pgtest.ShowForeign(t, p.DB)
	return p
}

// An advisory lock whose objsubid is neither 1 nor 2 is an extension's. It is no key, whatever
// its numbers are.
func TestLocksOfExtensionsAreNoKeys(t *testing.T) {
	t.Parallel()
	p := showingForeign(t)

	mine := p.NewConn(t)
	minePID := harness.Ask[int](t, mine, "SELECT pg_backend_pid()")
	harness.TryLock(t, mine, advisory.Int64(4821))
	harness.TryLock(t, mine, extensions)
	waiter := blockOn(t, p, extensions, advisory.Exclusive)

	only := advisory.HeldLock{Key: advisory.Int64(4821)}
	held, err := sqlconn.Held(t.Context(), mine)
	if err != nil || !slices.Equal(held, []advisory.HeldLock{only}) {
		t.Errorf("Held: %v, %v; want %v", held, err, only)
	}
	locks := inspectLocks(t, p)
	if len(locks) != 1 || locks[0].Key != only.Key || locks[0].PID != minePID || len(locks[0].WaitedForBy) != 0 {
		t.Errorf("Locks: %v; want %v of pid %d, for which nobody waits", locks, only.Key, minePID)
	}
	if n, err := inspect.Foreign(t.Context(), p); n != 2 || err != nil {
		t.Errorf("Foreign: %d, %v; want one that pid %d holds, and the wait of pid %d", n, err, minePID, waiter)
	}
	if keys := heldByQuery(t, mine, lockfn.HeldOn); !slices.Equal(keys, []advisory.Key{only.Key}) {
		t.Errorf("HeldOn: %v, want %v", keys, only.Key)
	}
	if keys := heldByQuery(t, mine, lockfn.Wanted); len(keys) != 0 {
		t.Errorf("Wanted: %v, want none", keys)
	}
	if n := harness.Ask[int](t, p, lockfn.LocksInUse); n < 2 {
		t.Errorf("LocksInUse: %d; an extension's lock takes its place in the table too", n)
	}
}

// The page says that it leaves out locks of extensions, and how many.
func TestPageSaysThatLocksOfExtensionsAreLeftOut(t *testing.T) {
	t.Parallel()
	p := showingForeign(t)
	h := inspect.Handler(p)
	shows := func(n int, line string) {
		t.Helper()
		if s := answerJSON(t, h); s.Foreign != n || len(s.Locks) != 0 {
			t.Errorf("the JSON has foreign %d and %v, want %d and no lock", s.Foreign, s.Locks, n)
		}
		_, body := answerInTime(t, h, "/")
		if got := strings.Contains(body, "left out"); got != (n > 0) || !strings.Contains(body, line) {
			t.Errorf("with %d such locks, want %q in:\n%s", n, line, body)
		}
	}
	shows(0, "")
	harness.TryLock(t, p.NewConn(t), extensions)
	shows(1, "1 lock of an extension is left out: it is on no key.")
	blockOn(t, p, extensions, advisory.Shared)
	shows(2, "2 locks of extensions are left out: they are on no key.")
}

// Guard cancels a wait for a key, and no wait for an extension's lock.
func TestGuardLeavesWaitsForLocksOfExtensionsAlone(t *testing.T) {
	t.Parallel()
	p := showingForeign(t)
	mine := p.NewConn(t)
	key := advisory.Int64(4821)
	harness.TryLock(t, mine, key)
	harness.TryLock(t, mine, extensions)
	leaving := []int{blockOn(t, p, extensions, advisory.Exclusive), blockOn(t, p, key, advisory.Exclusive)}
	waits := func(pid int) bool {
		return harness.Ask[bool](t, p, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pid = $1)", pid)
	}
	harness.DoSQL(t, p, lockfn.Guard(nil, leaving))
	harness.Eventually(t, "the wait for a key is canceled", func() bool { return !waits(leaving[1]) })
	// A cancel of the other was sent before that one's, if any, and takes as long.
	for range 20 {
		harness.DoSQL(t, p, lockfn.Guard(nil, leaving))
		if !waits(leaving[0]) {
			t.Fatal("the wait for an extension's lock was canceled")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// heldByQuery returns the keys of the rows of lockfn.HeldOn or lockfn.Wanted.
func heldByQuery(t *testing.T, conn sqlconn.Conn, query string) (keys []advisory.Key) {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		l, pid, err := lockfn.ScanHeldOn(rows)
		if err != nil {
			t.Fatal(err)
		}
		if pid == 0 {
			keys = append(keys, l.Key)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return keys
}

// Nobody is advised to end a session for an extension's lock: neither by Suspects, nor
// by the statements of the runbook.
func TestASessionWithAnExtensionsLockIsNoSuspect(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	p := showingForeign(t)
	quiet := harness.Drivers[0].Open(t, as(t, p.Url, nil, "billing-web")) // whom the runbook ends
	conn := quiet.NewConn(t)
	harness.TryLock(t, conn, extensions)
	pid := harness.Ask[int](t, conn, "SELECT pg_backend_pid()")
	waiter := blockOn(t, p, extensions, advisory.Exclusive)
	harness.Eventually(t, "it has been idle for 6 s", func() bool {
		return harness.Ask[bool](t, p, "SELECT state = 'idle' AND state_change < now() - interval '6 seconds' FROM pg_stat_activity WHERE pid = $1", pid)
	})
	suspects, err := inspect.Suspects(t.Context(), p, inspect.After(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range suspects {
		t.Errorf("%v", s)
	}

	text, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, b := range runbook.Blocks(string(text)) {
		// Those on the lock table count what takes a place in it, whoever's it is.
		if b.Language != "sql" || !strings.Contains(b.Text, "pg_locks") || strings.Contains(b.Text, "fastpath") || strings.Contains(b.Text, "advisory_locks") {
			continue
		}
		ran++
		for _, row := range cells(t, p, b.Text) {
			if slices.Contains(row, fmt.Sprint(pid)) || slices.Contains(row, fmt.Sprint(waiter)) || slices.Contains(row, "0:4820") ||
				strings.Contains(b.Text, "idle_holders") && !slices.Equal(row, []string{"0", "0", "0", "0"}) {
				t.Errorf("the runbook's %s answers %q:\n%s", b.Name(), row, b.Text)
			}
		}
	}
	if ran < 5 {
		t.Errorf("%d statements of the runbook read pg_locks", ran)
	}
	if !harness.Ask[bool](t, p, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", pid) {
		t.Error("the runbook ended the session")
	}
}

// cells returns what a query answers, as text.
func cells(t *testing.T, p *harness.Pool, query string) (all [][]string) {
	t.Helper()
	rows, err := p.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatalf("%v:\n%s", err, query)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		row := make([]sql.NullString, len(names))
		to := make([]any, len(names))
		for i := range row {
			to[i] = &row[i]
		}
		if err := rows.Scan(to...); err != nil {
			t.Fatal(err)
		}
		var line []string
		for _, c := range row {
			line = append(line, c.String)
		}
		all = append(all, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// A circle of waits may lead over an extension's lock: it is no key, but it keeps
// others waiting like one.
func TestDeadlockOverAnExtensionsLockIsFound(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	p := showingForeign(t)
	mine, other := p.NewConn(t), p.NewConn(t)
	key := advisory.Int64(4821)
	harness.TryLock(t, mine, extensions)
	harness.TryLock(t, other, key)
	pid := harness.Ask[int](t, other, "SELECT pg_backend_pid()")
	harness.DoSQL(t, other, "SET deadlock_timeout = '1h'") // it leaves the circle to us
	done := make(chan error, 1)
	go func() {
		_, err := other.ExecContext(t.Context(), "SELECT pg_advisory_lock("+extensions.SQL()+")")
		done <- err
	}()
	harness.Eventually(t, "the other waits", func() bool {
		return harness.Ask[bool](t, p, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pid = $1)", pid)
	})
	if err := sqlconn.Lock(t.Context(), mine, key, advisory.MaxWait(harness.Patience)); !errors.Is(err, advisory.ErrDeadlock) {
		t.Errorf("%v, want ErrDeadlock", err)
	}
	harness.Unlock(t, mine, extensions)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
