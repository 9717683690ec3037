package conn_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// A panicConn panics in its driver.
type panicConn struct{ *sql.Conn }

func (panicConn) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	panic("the driver")
}

func (panicConn) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	panic("the driver")
}

// A Lock that has panicked no longer waits, and reports no wait.
func TestNoWaitingEventAfterADriverPanics(t *testing.T) {
	p := harness.Drivers[1].Open(t, pgtest.URL(t))
	conn := p.NewConn(t).(*sql.Conn)
	const after = 20 * time.Millisecond
	var r harness.Recorder
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Lock has not panicked")
			}
		}()
		sqlconn.Lock(t.Context(), panicConn{conn}, harness.Key, sqlconn.PlainWait(), advisory.WithObserver(&r), advisory.WithWaitingAfter(after))
	}()
	before := len(r.All()) // a busy machine may be slow to panic
	time.Sleep(10 * after)
	if events := r.All(); len(events) != before {
		t.Errorf("%d events after Lock has panicked: %+v", len(events)-before, events)
	}
}
