package conn_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/proxy"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// A meter counts what the calls on one pinned connection send. It is pinned, for pgx
// pings a connection that comes out of the pool.
type meter struct {
	*testing.T
	link *proxy.Proxy
	conn sqlconn.Conn
}

func eachDriverMetered(t *testing.T, test func(m meter, p *harness.Pool)) {
	harness.EachDriverProxied(t, func(t *testing.T, p *harness.Pool, link *proxy.Proxy) {
		m := meter{t, link, p.NewConn(t)}
		test(m, p)
		if rows := rowsOf(t, m.conn, "SELECT 1 FROM pg_prepared_statements"); rows != 0 {
			t.Errorf("%d prepared statements are left in the session", rows)
		}
	})
}

// takes fails the test unless f takes want round trips, all of them simple queries.
func (m meter) takes(want int, what string, f func()) {
	m.Helper()
	m.link.Reset()
	f()
	s := m.link.Stats()
	if s.RoundTrips != want || len(s.Queries) != want {
		m.Errorf("%s: %d round trips, want %d: %s", what, s.RoundTrips, want, heads(s.Queries))
	}
	if s.Parses+s.Binds+s.Executes != 0 {
		m.Errorf("%s: %d parses, %d binds, %d executes, want simple queries alone", what, s.Parses, s.Binds, s.Executes)
	}
	if s.Connections+s.CancelRequests != 0 {
		m.Errorf("%s: %d new connections, %d cancel requests", what, s.Connections, s.CancelRequests)
	}
}

// heads returns the beginnings of the first few statements, for one line of a failure.
func heads(statements []string) string {
	const most, length = 6, 60
	var b strings.Builder
	separator := ""
	for i, s := range statements {
		if i == most {
			fmt.Fprintf(&b, ", and %d more", len(statements)-most)
			break
		}
		if len(s) > length {
			s = s[:length] + "…"
		}
		fmt.Fprintf(&b, "%s%q", separator, s)
		separator = ", "
	}
	return b.String()
}

// Begin is BeginTx of the pinned connection.
func (m meter) Begin(ctx context.Context, o *sql.TxOptions) (xact.Tx, error) {
	return m.conn.(interface {
		BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
	}).BeginTx(ctx, o)
}

// Tx begins a transaction on the pinned connection for f, and commits it.
func (m meter) Tx(f func(tx xact.Tx)) {
	m.Helper()
	tx, err := m.Begin(context.Background(), nil)
	if err != nil {
		m.Fatal(err)
	}
	f(tx)
	if err := tx.Commit(); err != nil {
		m.Error(err)
	}
}

// is fails the test unless a call returned want, nil.
func (m meter) is(want bool) func(got bool, err error) {
	return func(got bool, err error) {
		m.Helper()
		if err != nil || got != want {
			m.Errorf("%v, %v; want %v", got, err, want)
		}
	}
}

// rowsOf is the row count of a statement without parameters.
func rowsOf(t testing.TB, on interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, query string,
) int64 {
	t.Helper()
	r, err := on.ExecContext(context.Background(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	rows, err := r.RowsAffected()
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return rows
}

// keysFrom returns n keys that no other call returns.
func keysFrom(name string, n int) []advisory.Key {
	keys := make([]advisory.Key, n)
	for i := range keys {
		keys[i] = advisory.Name(name, string(rune('a'+i/10)), string(rune('0'+i%10)))
	}
	return keys
}

// withAndWithoutDeadline runs f with a context that never ends and with one that does.
func withAndWithoutDeadline(f func(ctx context.Context, s string)) {
	f(context.Background(), "")
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	f(ctx, ", with a deadline")
}

func TestRoundTripsOnAConnection(t *testing.T) {
	eachDriverMetered(t, func(m meter, p *harness.Pool) {
		m.takes(3, "the first TryLock on a connection, which compares pids, and Unlock", func() {
			m.is(true)(sqlconn.TryLock(context.Background(), m.conn, harness.Key))
			harness.Unlock(m, m.conn, harness.Key)
		})
		withAndWithoutDeadline(func(ctx context.Context, s string) {
			pair := func(keys []advisory.Key, opts ...advisory.ConnOption) func() {
				return func() {
					for _, k := range keys {
						m.is(true)(sqlconn.TryLock(ctx, m.conn, k, opts...))
						if err := sqlconn.Unlock(ctx, m.conn, k, opts...); err != nil {
							m.Error(err)
						}
					}
				}
			}
			m.takes(2, "TryLock and Unlock"+s, pair([]advisory.Key{harness.Key}))
			m.takes(2, "again"+s, pair([]advisory.Key{harness.Key}))
			m.takes(2, "shared"+s, pair([]advisory.Key{harness.Key}, advisory.Shared))
			m.takes(2, "a pair of numbers"+s, pair([]advisory.Key{advisory.Pair(-1, 7)}))
			m.takes(200, "100 new keys"+s, pair(keysFrom("conn"+s, 100)))

			m.takes(1, "TryLock"+s, func() { m.is(true)(sqlconn.TryLock(ctx, m.conn, harness.Key)) })
			m.takes(1, "Unlock"+s, func() {
				if err := sqlconn.Unlock(ctx, m.conn, harness.Key); err != nil {
					m.Error(err)
				}
			})
			m.takes(1, "Unlock of what is not held"+s, func() {
				if err := sqlconn.Unlock(ctx, m.conn, harness.Key); !errors.Is(err, advisory.ErrNotHeld) {
					m.Error(err)
				}
			})
			m.takes(1, "Lock of a free key"+s, func() {
				if err := sqlconn.Lock(ctx, m.conn, harness.Key, advisory.MaxWait(time.Hour)); err != nil {
					m.Error(err)
				}
			})
			m.takes(1, "UnlockAll"+s, func() {
				if err := sqlconn.UnlockAll(ctx, m.conn); err != nil {
					m.Error(err)
				}
			})
		})

		other := p.NewConn(m)
		harness.TryLock(m, other, harness.Key)
		m.takes(1, "TryLock of a busy key", func() { m.is(false)(sqlconn.TryLock(context.Background(), m.conn, harness.Key)) })
	})
}

func TestRoundTripsInATransaction(t *testing.T) {
	eachDriverMetered(t, func(m meter, p *harness.Pool) {
		hundred, busy := keysFrom("tx", 100), advisory.Name("busy")
		other := p.NewConn(m)
		harness.TryLock(m, other, busy)

		withAndWithoutDeadline(func(ctx context.Context, s string) {
			m.Tx(func(tx xact.Tx) {
				m.takes(1, "TryLock"+s, func() { m.is(true)(xact.TryLock(ctx, tx, harness.Key)) })
				m.takes(1, "TryLock of a busy key"+s, func() { m.is(false)(xact.TryLock(ctx, tx, busy)) })
				m.takes(1, "Lock of a free key"+s, func() {
					if err := xact.Lock(ctx, tx, advisory.Pair(1, 2)); err != nil {
						m.Error(err)
					}
				})
			})
			m.Tx(func(tx xact.Tx) {
				m.takes(100, "TryLock of 100 new keys"+s, func() {
					for _, k := range hundred {
						m.is(true)(xact.TryLock(ctx, tx, k))
					}
				})
			})
			m.Tx(func(tx xact.Tx) {
				m.takes(2, "TryLockAll of 100 keys"+s, func() { m.is(true)(xact.TryLockAll(ctx, tx, hundred)) })
			})
			m.Tx(func(tx xact.Tx) {
				m.takes(2, "TryLockAll, one of them busy"+s, func() {
					m.is(false)(xact.TryLockAll(ctx, tx, append(hundred[:99:99], busy)))
				})
				m.takes(2, "LockAll of 100 free keys"+s, func() {
					if err := xact.LockAll(ctx, tx, hundred); err != nil {
						m.Error(err)
					}
				})
			})
			m.Tx(func(tx xact.Tx) {
				m.takes(1, "TryLockAny of 100 keys"+s, func() {
					k, ok, err := xact.TryLockAny(ctx, tx, append([]advisory.Key{busy}, hundred...))
					if !ok || err != nil || k != hundred[0] {
						m.Errorf("%v, %v, %v", k, ok, err)
					}
				})
				m.takes(1, "TryLockAny, all busy"+s, func() {
					if _, ok, err := xact.TryLockAny(ctx, tx, []advisory.Key{busy}); ok || err != nil {
						m.Errorf("%v, %v", ok, err)
					}
				})
			})
		})
	})
}

func TestRoundTripsOfTryDo(t *testing.T) {
	noWork := func(context.Context, xact.Tx) error { return nil }
	eachDriverMetered(t, func(m meter, p *harness.Pool) {
		busy := advisory.Name("busy")
		other := p.NewConn(m)
		harness.TryLock(m, other, busy)
		withAndWithoutDeadline(func(ctx context.Context, s string) {
			for _, level := range []struct {
				sql.IsolationLevel
				trips int
			}{
				{sql.LevelDefault, 3},
				{sql.LevelReadCommitted, 3},
				{sql.LevelRepeatableRead, 4},
				{sql.LevelSerializable, 4},
			} {
				o := xact.TxOptions(&sql.TxOptions{Isolation: level.IsolationLevel})
				name := " under " + level.String() + s
				m.takes(level.trips, "TryDo"+name, func() { m.is(true)(xact.TryDo(ctx, m.Begin, harness.Key, noWork, o)) })
				m.takes(level.trips, "Do"+name, func() {
					if err := xact.Do(ctx, m.Begin, harness.Key, noWork, o); err != nil {
						m.Error(err)
					}
				})
				m.takes(3, "TryDo of a busy key"+name, func() { m.is(false)(xact.TryDo(ctx, m.Begin, busy, noWork, o)) })
				m.takes(10*level.trips, "TryDo of 10 new keys"+name, func() {
					for _, k := range keysFrom("do"+name, 10) {
						m.is(true)(xact.TryDo(ctx, m.Begin, k, noWork, o))
					}
				})
			}
		})

		m.link.Reset()
		m.is(true)(xact.TryDo(context.Background(), m.Begin, harness.Key, noWork))
		if q := m.link.Stats().Queries; len(q) != 3 || !hasPrefixFold(q[0], "begin") || !hasPrefixFold(q[2], "commit") {
			m.Errorf("%s, want BEGIN, the try, COMMIT", heads(q))
		}
	})
}

// The holders are asked for in one round trip more. To pgx, which prepares its text at the
// first time on a connection, the key is a parameter.
func TestRoundTripsOfAWaitThatEnds(t *testing.T) {
	harness.EachDriverProxied(t, func(t *testing.T, p *harness.Pool, link *proxy.Proxy) {
		parameters := 0
		if p.By.Sql == "pgx" {
			parameters = 1
		}
		m := meter{t, link, p.NewConn(t)}
		other := p.NewConn(t)
		harness.TryLock(t, other, harness.Key)
		// names returns the simple queries but that for the holders.
		names := func(what string, err error) []string {
			t.Helper()
			var na *advisory.NotAcquiredError
			if !errors.As(err, &na) || len(na.Holders) != 1 {
				t.Fatalf("%s: %v", what, err)
			}
			s := link.Stats()
			others := slices.DeleteFunc(slices.Clone(s.Queries), func(q string) bool { return strings.Contains(q, "pg_stat_activity") })
			if s.RoundTrips != len(others)+1 || s.Binds != parameters || s.Executes != parameters {
				t.Errorf("%s: %d round trips, %d binds, %d executes, and %q", what, s.RoundTrips, s.Binds, s.Executes, s.Queries)
			}
			return others
		}
		onConn := func(opts ...advisory.ConnOption) error {
			link.Reset()
			return sqlconn.Lock(context.Background(), m.conn, harness.Key, opts...)
		}
		onConn(advisory.MaxWait(0)) // pgx prepares
		err := onConn(advisory.MaxWait(0))
		if n := len(names("Lock, one try", err)); n != 1 {
			t.Errorf("Lock, one try: %d queries", n)
		}
		names("Lock", onConn(advisory.MaxWait(30*time.Millisecond)))

		m.Tx(func(tx xact.Tx) {
			inTx := func(opts ...advisory.TxOption) error {
				link.Reset()
				return xact.Lock(context.Background(), tx, harness.Key, opts...)
			}
			names("xact.Lock", inTx(advisory.MaxWait(30*time.Millisecond)))
			link.Reset()
			err := xact.LockAll(context.Background(), tx, []advisory.Key{harness.Key, advisory.Int64(7)}, advisory.MaxWait(0))
			names("xact.LockAll", err)
		})
		link.Reset()
		err = xact.Do(context.Background(), m.Begin, harness.Key, func(context.Context, xact.Tx) error { return nil }, advisory.MaxWait(0))
		if n := len(names("xact.Do", err)); n != 3 {
			t.Errorf("xact.Do, one try: %q, want BEGIN, the try, ROLLBACK", link.Stats().Queries)
		}
	})
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
