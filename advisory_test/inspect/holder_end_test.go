package inspect_test

import (
	"errors"
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/inspect"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// holderIn returns the one holder that the error of a wait names.
func holderIn(t *testing.T, err error) advisory.Holder {
	t.Helper()
	busy, ok := errors.AsType[*advisory.NotAcquiredError](err)
	if !ok || len(busy.Holders) != 1 {
		t.Fatalf("%v", err)
	}
	return busy.Holders[0]
}

// ended reports whether the holder's statement ended its session.
func ended(t *testing.T, on *harness.Pool, h advisory.Holder) bool {
	t.Helper()
	rows, err := on.Query(h.EndSQL())
	if err != nil {
		t.Fatalf("%s: %v", h.EndSQL(), err)
	}
	defer rows.Close()
	return rows.Next()
}

// The statement in the error of a wait ends the holder, for each kind of key, mode and wait.
func TestStatementThatEndsAHolder(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		for _, k := range []advisory.Key{
			harness.Key, advisory.Int64(0), advisory.Int64(-1), advisory.Int64(math.MinInt64), advisory.Int64(math.MaxInt64),
			advisory.Pair(-1, math.MinInt32), advisory.Pair(0, 0), advisory.Name("billing"),
		} {
			for _, m := range harness.Modes {
				conn, waiter := p.NewConn(t), p.NewConn(t)
				harness.TryLock(t, conn, k, m)
				h := holderIn(t, sqlconn.Lock(t.Context(), waiter, k, advisory.MaxWait(0)))
				if h.Key != k || h.Mode != m || h.BackendStart.IsZero() || h.BackendStart.After(time.Now()) {
					t.Errorf("%+v", h)
				}
				if !ended(t, p, h) {
					t.Errorf("%v %v: no effect: %s", k, m, h.EndSQL())
				}
				if err := sqlconn.Lock(t.Context(), waiter, k, advisory.MaxWait(harness.Patience)); err != nil {
					t.Error(err)
				}
				harness.Unlock(t, waiter, k)
			}
		}
		// Of a Locker, of a semaphore's slot, and of a transaction.
		l, other := p.Locker(t), p.Locker(t)
		lock, _ := harness.LockerTry(t, l, harness.Key)
		h := holderIn(t, harness.Second(other.Lock(t.Context(), harness.Key, advisory.MaxWait(0))))
		if !ended(t, p, h) {
			t.Errorf("a Locker's lock: %s", h.EndSQL())
		}
		harness.Ended(t, lock.Context(), advisory.ErrLost)
		slot, ok, err := l.Semaphore(harness.Key, 1).TryAcquire(t.Context())
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		h = holderIn(t, harness.Second(other.Semaphore(harness.Key, 1).Acquire(t.Context(), advisory.MaxWait(0))))
		if h.Key != slot.Key() || !ended(t, p, h) {
			t.Errorf("a slot %v: %+v, %s", slot.Key(), h, h.EndSQL())
		}
		harness.Ended(t, slot.Context(), advisory.ErrLost)
		tx := p.Tx(t, nil)
		if err := xact.Lock(t.Context(), tx, harness.Key); err != nil {
			t.Fatal(err)
		}
		h = holderIn(t, xact.Lock(t.Context(), p.Tx(t, nil), harness.Key, advisory.MaxWait(0)))
		if !ended(t, p, h) {
			t.Errorf("a transaction: %s", h.EndSQL())
		}
	})
}

// The server reuses pids, and a session goes back to its pool and works on. Neither is ended.
func TestStatementThatEndsAHolderSparesOthers(t *testing.T) {
	t.Parallel()
	p := harness.Drivers[0].Open(t, pgtest.URL(t))
	conn := p.NewConn(t)
	harness.TryLock(t, conn, harness.Key)
	holders, err := inspect.Holders(t.Context(), p, harness.Key)
	if err != nil || len(holders) != 1 {
		t.Fatal(holders, err)
	}
	h := holders[0]
	anotherSession, anotherKey, anotherMode, released := h, h, h, h
	anotherSession.BackendStart = h.BackendStart.Add(-time.Microsecond)
	anotherKey.Key = advisory.Int64(1)
	anotherMode.Mode = advisory.Shared
	for _, h := range []advisory.Holder{anotherSession, anotherKey, anotherMode} {
		if ended(t, p, h) {
			t.Fatalf("it ended %+v", h)
		}
	}
	harness.Unlock(t, conn, harness.Key)
	if ended(t, p, released) {
		t.Fatalf("it ended a session that had released the key: %s", released.EndSQL())
	}
	harness.DoSQL(t, conn, "SELECT 1") // the session lives
	harness.TryLock(t, conn, harness.Key)
	elsewhere := harness.Drivers[0].Open(t, pgtest.URL(t))
	if !ended(t, elsewhere, h) {
		t.Errorf("no effect from another database: %s", h.EndSQL())
	}
}

// A role that may not see when the session began still ends the holder of the key only.
func TestStatementThatEndsAHolderWithoutItsStart(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t)
	role := harness.Drivers[0].Open(t, harness.Unprivileged(t, server))
	u, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + harness.Ask[string](t, role, "SELECT current_database()::text")
	super := harness.Drivers[0].Open(t, u.String())
	conn := super.NewConn(t)
	harness.TryLock(t, conn, harness.Key)
	holders, err := inspect.Holders(t.Context(), role, harness.Key)
	if err != nil || len(holders) != 1 {
		t.Fatal(holders, err)
	}
	h := holders[0]
	if !h.BackendStart.IsZero() {
		t.Errorf("%+v", h)
	}
	other := h
	other.Key = advisory.Int64(1)
	if ended(t, super, other) || !ended(t, super, h) {
		t.Error(h.EndSQL())
	}
}

func TestStatementThatEndsAPreparedTransaction(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t, "max_prepared_transactions=5")
	p := harness.Drivers[1].Open(t, server.Database(t))
	gids := []string{`it's \here`, "other"}
	for _, gid := range gids {
		conn := p.NewConn(t)
		harness.DoSQL(t, conn, "BEGIN")
		harness.DoSQL(t, conn, "SELECT pg_advisory_xact_lock_shared(4820)")
		harness.DoSQL(t, conn, "PREPARE TRANSACTION "+inspectQuote(gid))
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	p = harness.Drivers[1].Open(t, p.Url)
	conn := p.NewConn(t)
	err := sqlconn.Lock(t.Context(), conn, harness.Key, advisory.MaxWait(0))
	busy, ok := errors.AsType[*advisory.NotAcquiredError](err)
	if !ok || len(busy.Holders) != 2 {
		t.Fatal(err)
	}
	var seen []string
	for _, h := range busy.Holders {
		seen = append(seen, h.Prepared)
		harness.DoSQL(t, p, h.EndSQL())
	}
	slices.Sort(seen)
	if !slices.Equal(seen, gids) {
		t.Errorf("%q, want %q", seen, gids)
	}
	if !strings.Contains(err.Error(), "the prepared transaction 'other'") {
		t.Error(err)
	}
	harness.TryLock(t, conn, harness.Key)
}
