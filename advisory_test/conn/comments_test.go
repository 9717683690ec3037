package conn_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// A commenting driver puts a comment in front of each statement, another each time, as those do
// that trace.
type commenting struct{ sqldriver.Connector }

type commentingConn struct {
	sqldriver.Conn
	n *atomic.Int64
}

func (c commenting) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &commentingConn{conn, new(atomic.Int64)}, nil
}

func (c *commentingConn) comment(query string) string {
	return fmt.Sprintf("/*traceparent='00-%d',dddbs='app'*/ %s", c.n.Add(1), query)
}

func (c *commentingConn) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	return c.Conn.(sqldriver.ExecerContext).ExecContext(ctx, c.comment(query), args)
}

func (c *commentingConn) QueryContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	return c.Conn.(sqldriver.QueryerContext).QueryContext(ctx, c.comment(query), args)
}

func (c *commentingConn) BeginTx(ctx context.Context, o sqldriver.TxOptions) (sqldriver.Tx, error) {
	return c.Conn.(sqldriver.ConnBeginTx).BeginTx(ctx, o)
}

func (c *commentingConn) ResetSession(ctx context.Context) error {
	return c.Conn.(sqldriver.SessionResetter).ResetSession(ctx)
}

func (c *commentingConn) IsValid() bool { return c.Conn.(sqldriver.Validator).IsValid() }

// Waits know each other through a driver that puts comments in front, too.
func TestDeadlockIsToldThroughADriverThatAddsComments(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	url := pgtest.URL(t)
	connector, err := pq.NewConnector(url)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(commenting{connector})
	t.Cleanup(func() { db.Close() })
	p := &harness.Pool{DB: db, By: harness.Drivers[0], Url: url, X: sqlx.NewDb(db, "postgres")}
	runRings(t, p, slices.DeleteFunc(slices.Clone(rings), func(r ring) bool { return r.linger > 0 || r.writers > 0 || r.plain }), 25)
}
