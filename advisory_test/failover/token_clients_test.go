//go:build unix

package failover_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// A tokenClient is a pool that leads to one address, whatever server is there, and a Locker that
// draws tokens all the time.
type tokenClient struct {
	name string
	db   *sql.DB
	l    *locker.Locker
}

func newTokenClients(t *testing.T, url string) (clients []tokenClient) {
	for _, d := range harness.Drivers[:2] {
		db := d.Open(t, url).DB
		l := locker.New(db, locker.WithFencing())
		t.Cleanup(func() { l.Close() })
		clients = append(clients, tokenClient{d.Name, db, l})
	}
	return clients
}

// draw takes a lock n times and returns the first and the last token. A session that the last change
// of the server ended may be lost before. Any other error fails the test.
func draw(t *testing.T, l *locker.Locker, n int) (first, last uint64) {
	t.Helper()
	for range n {
		token := drawOne(t, l)
		if token <= last {
			t.Errorf("token %#x after %#x", token, last)
		}
		if first == 0 {
			first = token
		}
		last = token
	}
	return first, last
}

func drawOne(t *testing.T, l *locker.Locker) uint64 {
	t.Helper()
	for {
		lock, ok, err := l.TryLock(t.Context(), harness.Key)
		if errors.Is(err, advisory.ErrLost) && !errors.Is(err, advisory.ErrUnsafeServer) {
			continue
		}
		if err != nil || !ok {
			t.Fatal("no lock: ", err)
		}
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
		return lock.Token()
	}
}

// drawWith draws a token through a Locker of its own.
func drawWith(t *testing.T, db *sql.DB, opts ...locker.Option) uint64 {
	t.Helper()
	l := locker.New(db, append(opts, locker.WithFencing())...)
	defer l.Close()
	return drawOne(t, l)
}

// is checks the sum of timeline and epoch in a token, and how the token compares to an earlier one.
func is(t *testing.T, token uint64, sum uint64, order string, earlier uint64) {
	t.Helper()
	grown := token > earlier
	if token>>48 != sum || grown != (order == "greater than") {
		t.Errorf("token %#x; want one of %d<<48, %s %#x", token, sum, order, earlier)
	}
}

// xid returns the transaction id of a token.
func xid(token uint64) uint64 { return token & (1<<48 - 1) }

// refusesAsStale checks that no call of a Locker gives out a lock, because the pool has led to a
// newer timeline of the system.
func refusesAsStale(t *testing.T, l *locker.Locker) {
	t.Helper()
	var err error
	harness.Eventually(t, "the session on the former server is lost", func() bool {
		err = use(l)
		return !errors.Is(err, advisory.ErrLost)
	})
	unsafe, ok := errors.AsType[*advisory.UnsafeServerError](err)
	if !ok || unsafe.Reason != advisory.StalePrimary {
		t.Errorf("want StalePrimary: %v", err)
	}
}

// stopped stops the server in order, so that it archives all of its write-ahead log.
func stopped(t *testing.T, server *pgtest.Server) {
	t.Helper()
	if err := server.Stop("fast"); err != nil {
		t.Fatal(err)
	}
}

// ask returns a value from a server, past the pools of the test.
func ask[T any](t *testing.T, server *pgtest.Server, query string) T {
	t.Helper()
	db := harness.Drivers[0].Open(t, server.SocketURL())
	defer db.Close()
	return harness.Ask[T](t, db.DB, query)
}

// recovered waits until a server has ended its recovery.
func recovered(t *testing.T, server *pgtest.Server) {
	t.Helper()
	db := harness.Drivers[0].Open(t, server.SocketURL())
	defer db.Close()
	harness.Eventually(t, "the server has recovered", func() bool {
		var recovers bool
		err := db.QueryRowContext(context.Background(), "SELECT pg_is_in_recovery()").Scan(&recovers)
		return err == nil && !recovers
	})
}
