package pooler_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lib/pq"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/proxy"
	"github.com/pgadvisory/pgadvisory/locker"
)

// A check that is made later, on the session that holds locks, takes none of them away: neither
// on a link so far that its time does not suffice, nor on one that stands still for a while.
func TestLateServerCheckOnAFarLink(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	harness.AtOnce(t, func(all *harness.Together) {
		for _, d := range harness.Drivers[:2] {
			for _, how := range []string{"far", "stands still"} {
				all.Start(d.Name+"/"+how, func(t *testing.T) {
					p, link := d.Proxied(t, pgtest.URL(t))
					p.SetMaxOpenConns(2)
					busy := p.NewConn(t)
					events := &harness.Recorder{}
					l := p.Locker(t, advisory.WithObserver(events), locker.WithHeartbeat(200*time.Millisecond))
					lock, ok := harness.LockerTry(t, l, harness.Key)
					if !ok {
						t.Fatal("not granted")
					}
					frozen := make(<-chan struct{})
					if how == "far" {
						link.Delay(60 * time.Millisecond) // ten round trips are three heartbeats
					} else {
						frozen = link.FreezeOn(func(m proxy.Message) bool {
							return m.Direction == proxy.Up && strings.Contains(m.Text, "pg_stat_activity")
						})
						go func() {
							<-frozen
							time.Sleep(3 * time.Second) // more than the check may take, less than a loss
							link.Thaw()
						}()
					}
					busy.Close()
					err := l.Ping(t.Context())
					t.Logf("Ping: %v", err)
					if err != nil && !strings.Contains(err.Error(), "could not be checked") {
						t.Errorf("Ping: %v", err)
					}
					if how != "far" {
						select {
						case <-frozen:
						default:
							t.Error("the link has not stood still")
						}
					}
					link.Delay(0)
					if err := l.Ping(t.Context()); err != nil {
						t.Errorf("Ping, on a link that is near again: %v", err)
					}
					if cause := context.Cause(lock.Context()); cause != nil {
						t.Errorf("the lock ends with %v", cause)
					}
					if err := lock.Unlock(); err != nil {
						t.Error(err)
					}
					for _, e := range events.All() {
						if e.Kind == advisory.SessionClosed {
							t.Errorf("the session was closed: %v", e.Err)
						}
					}
					p.NoLocks(t)
				})
			}
		}
	})
}

// A cancelledTry connects; the first statement that takes a lock is cancelled after it
// has taken it.
type cancelledTry struct {
	*pq.Connector
	done atomic.Bool
}

type pqConn interface {
	sqldriver.Conn
	sqldriver.ConnBeginTx
	sqldriver.ConnPrepareContext
	sqldriver.ExecerContext
	sqldriver.QueryerContext
	sqldriver.SessionResetter
}

type cancelledTryConn struct {
	pqConn
	c *cancelledTry
}

func (c *cancelledTry) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &cancelledTryConn{conn.(pqConn), c}, nil
}

func (c *cancelledTryConn) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	r, err := c.pqConn.ExecContext(ctx, query, args)
	if err == nil && strings.Contains(query, "pg_try_advisory_lock") && c.c.done.CompareAndSwap(false, true) {
		return nil, &pq.Error{Code: "57014", Message: "canceling statement due to user request"}
	}
	return r, err
}

// A connection on which the check has left a lock is not used.
func TestServerCheckThatIsCancelledLeavesNoLock(t *testing.T) {
	p := harness.Drivers[0].Open(t, pgtest.URL(t))
	connector, err := pq.NewConnector(p.Url)
	if err != nil {
		t.Fatal(err)
	}
	cancelled := &cancelledTry{Connector: connector}
	db := sql.OpenDB(cancelled)
	defer db.Close()
	l := locker.New(db)
	defer l.Close()
	lock, ok, err := l.TryLock(t.Context(), harness.Key)
	t.Logf("%v, %v", ok, err)
	if !ok {
		p.NoLocks(t)
		if lock, ok, err = l.TryLock(t.Context(), harness.Key); !ok || err != nil {
			t.Fatalf("again: %v, %v", ok, err)
		}
	}
	if !cancelled.done.Load() {
		t.Error("nothing was cancelled")
	}
	if held, _ := p.Locks(t); held != 1 {
		t.Errorf("%d locks are held", held)
	}
	if err := lock.Unlock(); err != nil {
		t.Error(err)
	}
}
