package conn_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// Work that takes another key on its connection, and leaves it locked, is told so, and leaves
// nothing in the pool. A key that somebody else has left there is no error of the work's.
func TestDoWhereTheWorkLeavesAnotherKeyLocked(t *testing.T) {
	ctx := context.Background()
	other := advisory.Int64(4821)
	errFn := errors.New("fn")
	take := func(c sqlconn.Conn) error { return sqlconn.Lock(ctx, c, other) }
	leave := func(t *testing.T, p *harness.Pool) (pid int) {
		conn := p.NewConn(t)
		harness.TryLock(t, conn, other)
		pid = harness.SessionOf(t, conn)
		conn.Close()
		return pid
	}
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		p.SetMaxOpenConns(1)
		told := func(t *testing.T, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), "left another key locked") || !strings.Contains(err.Error(), other.String()) || errors.Is(err, advisory.ErrLost) {
				t.Error(err)
			}
			p.NoLocks(t)
		}
		told(t, p.Do(ctx, harness.Key, func(_ context.Context, c sqlconn.Conn) error { return take(c) }))
		_, err := p.TryDo(ctx, harness.Key, func(_ context.Context, c sqlconn.Conn) error { return take(c) })
		told(t, err)
		err = p.Do(ctx, harness.Key, func(_ context.Context, c sqlconn.Conn) error { return errors.Join(take(c), errFn) })
		told(t, err)
		if !errors.Is(err, errFn) {
			t.Error(err)
		}
		if v := harness.PanicOf(func() {
			p.Do(ctx, harness.Key, func(_ context.Context, c sqlconn.Conn) error { take(c); panic(errFn) })
		}); v != errFn {
			t.Errorf("panic %v", v)
		}
		p.NoLocks(t)

		// Released, by whatever means: the connection stays.
		var pid int
		for _, release := range []func(c sqlconn.Conn) error{
			func(c sqlconn.Conn) error { return sqlconn.Unlock(ctx, c, other) },
			func(c sqlconn.Conn) error {
				_, err := c.ExecContext(ctx, "SELECT pg_advisory_unlock(4821)")
				return err
			},
		} {
			err := p.Do(ctx, harness.Key, func(_ context.Context, c sqlconn.Conn) error {
				pid = harness.SessionOf(t, c)
				return errors.Join(take(c), release(c))
			})
			if err != nil {
				t.Error(err)
			}
			if now := harness.SessionOf(t, p); now != pid {
				t.Errorf("session %d, was %d", now, pid)
			}
		}

		left := leave(t, p)
		err = p.Do(ctx, harness.Key, func(_ context.Context, c sqlconn.Conn) error { pid = harness.SessionOf(t, c); return nil })
		if err != nil || pid != left {
			t.Errorf("%v, session %d of %d", err, pid, left)
		}
		p.NoLocks(t)
	})
}
