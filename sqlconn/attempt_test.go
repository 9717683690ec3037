package sqlconn_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// A connector opens [generous] connections.
type connector struct{}

func (connector) Connect(context.Context) (driver.Conn, error) { return &unused{}, nil }
func (connector) Driver() driver.Driver                        { return nil }

type unused struct{ _ byte }

func (*unused) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (*unused) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }
func (*unused) Close() error                        { return nil }

// A generous connection is one session that grants every try. It answers a try when another one has come,
// or none has for a while.
type generous struct {
	*sql.Conn
	tries atomic.Int32
	both  chan struct{}
}

func (c *generous) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	if c.tries.Add(1) == 2 {
		close(c.both)
	}
	select {
	case <-c.both:
	case <-time.After(100 * time.Millisecond):
	}
	return driver.RowsAffected(1), nil
}

// If two calls try one key on one connection at the same time, only one of them asks the server.
func TestOneAttemptAtATimeOnAConnection(t *testing.T) {
	job := advisory.Int64(4820)
	db := sql.OpenDB(connector{})
	defer db.Close()
	ctx := context.Background()
	try := func(conn sqlconn.Conn) error {
		ok, err := sqlconn.TryLock(ctx, conn, job)
		if err == nil && !ok {
			err = errors.New("refused")
		}
		return err
	}
	wait := func(conn sqlconn.Conn) error { return sqlconn.Lock(ctx, conn, job) }
	plain := func(conn sqlconn.Conn) error { return sqlconn.Lock(ctx, conn, job, sqlconn.PlainWait()) }
	for i, calls := range [][2]func(sqlconn.Conn) error{{try, try}, {try, wait}, {wait, wait}, {plain, wait}} {
		raw, err := db.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		conn := &generous{Conn: raw, both: make(chan struct{})}
		answers := make(chan error, 2)
		for _, call := range calls {
			go func() { answers <- call(conn) }()
		}
		granted := 0
		for range calls {
			if err := <-answers; err == nil {
				granted++
			} else if !errors.Is(err, advisory.ErrAlreadyHeld) {
				t.Errorf("%d: %v", i, err)
			}
		}
		if granted != 1 {
			t.Errorf("%d: granted %d times", i, granted)
		}
		raw.Close()
		db.SetMaxIdleConns(0) // a connection of its own for each
	}
}
