package conn_test

import (
	"context"
	"errors"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// The timeouts of the role, shorter than a slice, end no wait on the server.
func TestShortTimeoutsDoNotEndAWait(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t)
	harness.AtOnce(t, func(all *harness.Together) {
		for _, d := range harness.Drivers {
			all.Start(d.Name, func(t *testing.T) {
				p, watch := adverse(t, server, d, []string{
					"ALTER ROLE ROLE SET statement_timeout = '200ms'",
					"ALTER ROLE ROLE SET lock_timeout = '100ms'",
				})
				holder := watch.NewConn(t)
				harness.TryLock(t, holder, harness.Key)
				done := make(chan error, len(kinds))
				n := 0
				for _, kind := range kinds {
					if !kind.sliced {
						continue
					}
					n++
					go func() {
						for {
							err := kind.wait(context.Background(), p, harness.Key, func() {})
							// On a busy machine a plain statement may be too slow for such a timeout.
							if timedOut(err) {
								continue
							}
							if err != nil {
								err = errors.Join(errors.New(kind.name), err)
							}
							done <- err
							return
						}
					}()
				}
				harness.Eventually(t, "all wait on the server", func() bool { _, waiting := p.Locks(t); return waiting == n })
				select {
				case err := <-done:
					t.Fatalf("a wait ended before the lock was free: %v", err)
				case <-time.After(1800 * time.Millisecond): // with two looks for a deadlock
				}
				harness.Unlock(t, holder, harness.Key)
				for range n {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
				p.NoLocks(t)
				for _, statement := range failed(t, server, p) {
					if !strings.Contains(statement, "DO $") && !strings.Contains(statement, "pg_stat_clear_snapshot") {
						t.Logf("timed out, but a plain statement: %s", statement)
						continue
					}
					t.Errorf("timed out: %s", statement)
				}
			})
		}
	})
}

func timedOut(err error) bool {
	var e interface{ SQLState() string }
	return errors.As(err, &e) && e.SQLState() == "57014"
}

// failed returns the statements of which the server's log says that they failed, of the
// pool's database.
func failed(t testing.TB, s *pgtest.Server, p *harness.Pool) (statements []string) {
	t.Helper()
	harness.Complaints(t, s, p) // waits until all are in the log
	u, err := url.Parse(p.Url)
	if err != nil {
		t.Fatal(err)
	}
	of := regexp.MustCompile(`(?m)\] ` + regexp.QuoteMeta(strings.TrimPrefix(u.Path, "/")) + `/\S* STATEMENT:\s*(.*)$`)
	for _, m := range of.FindAllStringSubmatch(s.Log(), -1) {
		statements = append(statements, m[1])
	}
	return statements
}

// MaxWait is not for a try: on a far link its answer is waited for.
func TestMaxWaitIsNotForATryOnAFarLink(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	short := advisory.MaxWait(10 * time.Millisecond)
	nothing := func(context.Context, xact.Tx) error { return nil }
	harness.AtOnce(t, func(all *harness.Together) {
		for _, d := range harness.Drivers[:2] {
			all.Start(d.Name, func(t *testing.T) {
				p, link := d.Proxied(t, pgtest.URL(t))
				conn, tx := p.NewConn(t), p.Tx(t, nil)
				link.Delay(1200 * time.Millisecond) // more than MaxWait and the grace after it
				if ok, err := sqlconn.TryLock(t.Context(), conn, advisory.Int64(1), short); !ok || err != nil {
					t.Errorf("on a connection: %v, %v", ok, err)
				}
				if ok, err := xact.TryLock(t.Context(), tx, advisory.Int64(2), short); !ok || err != nil {
					t.Errorf("in a transaction: %v, %v", ok, err)
				}
				if ran, err := p.TxTryDo(t.Context(), advisory.Int64(3), nothing, short); !ran || err != nil {
					t.Errorf("TryDo in a transaction: %v, %v", ran, err)
				}
				link.Delay(0)
				harness.Unlock(t, conn, advisory.Int64(1))
			})
		}
	})
}

// Two goroutines want one key on one connection, which the server would grant to both.
func TestOneKeyOneConnectionTwoGoroutines(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		conn := p.NewConn(t)
		for i := range 50 {
			k := advisory.Int64(int64(i))
			got := make(chan error, 4)
			for j := range cap(got) {
				go func() {
					if j%2 == 0 {
						ok, err := sqlconn.TryLock(t.Context(), conn, k)
						if err == nil && !ok {
							err = errors.New("refused")
						}
						got <- err
					} else {
						got <- sqlconn.Lock(t.Context(), conn, k)
					}
				}()
			}
			granted := 0
			for range cap(got) {
				if err := <-got; err == nil {
					granted++
				} else if !errors.Is(err, advisory.ErrAlreadyHeld) {
					t.Error(err)
				}
			}
			if granted != 1 {
				t.Errorf("granted %d times", granted)
			}
			harness.Unlock(t, conn, k)
		}
		p.NoLocks(t)
	})
}
