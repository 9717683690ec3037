package conn_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// A seat is a place in a ring of waits.
type seat struct {
	*harness.Pool
	ctx         context.Context
	mine, wants harness.Claim
	meet        func() error // returns when every seat of the ring holds what is its
	linger      time.Duration

	// How the wait for what it wants ended, and when.
	err   error
	ended time.Time
}

// ends takes down how the wait ended. Who is told of a deadlock may take its time
// before it gives way.
func (s *seat) ends(err error) {
	s.err, s.ended = err, time.Now()
	if errors.Is(err, advisory.ErrDeadlock) {
		time.Sleep(s.linger)
	}
}

// A party takes a seat: it takes what is its, meets the others, waits for what it
// wants, sees that its connection or transaction is usable, and releases. It returns
// what went wrong apart from the wait.
type party func(s *seat) error

func waitOnConn(s *seat) error { return s.waitOnConn() }

// waitPlainly leaves deadlocks to the server.
func waitPlainly(s *seat) error { return s.waitOnConn(sqlconn.PlainWait()) }

func (s *seat) waitOnConn(opts ...advisory.ConnOption) error {
	conn, err := s.Pin(s.ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := sqlconn.Lock(s.ctx, conn, s.mine.Key, s.mine.Mode); err != nil {
		return err
	}
	if err := s.meet(); err != nil {
		return err
	}
	s.ends(sqlconn.Lock(s.ctx, conn, s.wants.Key, append(opts, s.wants.Mode)...))
	return errors.Join(s.connUsable(conn), sqlconn.UnlockAll(s.ctx, conn))
}

// giveUp is cancelled on the server, and then does nothing for a time.
func giveUp(s *seat) error {
	conn, err := s.Pin(s.ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	pid, err := pidOf(s.ctx, conn)
	if err != nil {
		return err
	}
	if err := sqlconn.Lock(s.ctx, conn, s.mine.Key, s.mine.Mode); err != nil {
		return err
	}
	if err := s.untilTaken(s.wants); err != nil {
		return err
	}
	ended, canceled := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-ended:
				canceled <- nil
				return
			case <-time.After(10 * time.Millisecond): // the last may have come between two slices
			}
			_, err := s.ExecContext(s.ctx, "SELECT pg_cancel_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND pid = $1", pid)
			if err != nil {
				canceled <- err
				return
			}
		}
	}()
	err = sqlconn.Lock(s.ctx, conn, s.wants.Key, s.wants.Mode)
	close(ended)
	if err := <-canceled; err != nil {
		return err
	}
	if err == nil || !strings.Contains(err.Error(), "canceled on the server") {
		return fmt.Errorf("a wait that was canceled: %w", err)
	}
	if err := s.meet(); err != nil {
		return err
	}
	time.Sleep(s.linger)
	return errors.Join(s.connUsable(conn), sqlconn.UnlockAll(s.ctx, conn))
}

// untilTaken returns when another holds c.
func (s *seat) untilTaken(c harness.Claim) error {
	for {
		free, err := s.TxTryDo(s.ctx, c.Key, func(context.Context, xact.Tx) error { return nil }, c.Mode)
		if !free || err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// haveWaited has what it wants, and does nothing for a time. Its last statement was that
// of a wait.
func haveWaited(s *seat) error {
	conn, err := s.Pin(s.ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := sqlconn.Lock(s.ctx, conn, s.mine.Key); err != nil {
		return err
	}
	if err := sqlconn.Lock(s.ctx, conn, s.wants.Key, harness.Shared); err != nil {
		return err
	}
	if _, err := conn.ExecContext(s.ctx, lockfn.Waits(s.wants.Key, harness.Shared)+"SELECT 1"); err != nil {
		return err
	}
	if err := s.meet(); err != nil {
		return err
	}
	time.Sleep(s.linger)
	return sqlconn.UnlockAll(s.ctx, conn)
}

// upgrade wants exclusively what it holds shared, from before this module.
func upgrade(s *seat) error {
	conn, err := s.Pin(s.ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(s.ctx, "SELECT pg_advisory_lock_shared("+s.mine.Key.SQL()+")"); err != nil {
		return err
	}
	if err := s.meet(); err != nil {
		return err
	}
	s.ends(sqlconn.Lock(s.ctx, conn, s.wants.Key, s.wants.Mode))
	return errors.Join(s.connUsable(conn), sqlconn.UnlockAll(s.ctx, conn))
}

func waitInConnDo(s *seat) error {
	return s.Do(s.ctx, s.mine.Key, func(ctx context.Context, conn sqlconn.Conn) error {
		if err := s.meet(); err != nil {
			return err
		}
		s.ends(sqlconn.Lock(ctx, conn, s.wants.Key, s.wants.Mode))
		err := s.connUsable(conn)
		if s.err == nil {
			err = errors.Join(err, sqlconn.Unlock(ctx, conn, s.wants.Key, s.wants.Mode))
		}
		return err
	}, s.mine.Mode)
}

func waitInTx(s *seat) error {
	return s.waitInTx("", func(tx xact.Tx) error { return xact.Lock(s.ctx, tx, s.wants.Key, s.wants.Mode) })
}

// waitForAll wants a free key too.
func waitForAll(s *seat) error {
	return s.waitInTx("", func(tx xact.Tx) error {
		return xact.LockAll(s.ctx, tx, []advisory.Key{s.wants.Key, s.spare()}, s.wants.Mode)
	})
}

// waitWithRow has written a row, also.
func waitWithRow(s *seat) error {
	return s.waitInTx(s.writeRow(s.mine), func(tx xact.Tx) error { return xact.Lock(s.ctx, tx, s.wants.Key, s.wants.Mode) })
}

// waitForRow waits for a row, not for a lock of this module.
func waitForRow(s *seat) error {
	return s.waitInTx("", func(tx xact.Tx) error {
		_, err := tx.ExecContext(s.ctx, s.writeRow(s.wants))
		return err
	})
}

// rowsOfClaims is what waitWithRow and waitForRow need.
const rowsOfClaims = "CREATE TABLE claims (key text PRIMARY KEY, n int)"

func (s *seat) writeRow(c harness.Claim) string {
	return fmt.Sprintf("INSERT INTO claims VALUES ('%v', 1) ON CONFLICT (key) DO UPDATE SET n = claims.n + 1", c.Key)
}

func (s *seat) waitInTx(before string, wait func(tx xact.Tx) error) error {
	tx, err := s.NewTx(s.ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(s.ctx, before); err != nil {
		return err
	}
	if err := xact.Lock(s.ctx, tx, s.mine.Key, s.mine.Mode); err != nil {
		return err
	}
	if err := s.meet(); err != nil {
		return err
	}
	s.ends(wait(tx))
	return errors.Join(s.txUsable(tx), tx.Commit())
}

// lockAllAtOnce waits by one LockAll for what is its and, once another holds that, for
// what it wants.
func lockAllAtOnce(s *seat) error {
	if err := s.untilTaken(s.wants); err != nil {
		return err
	}
	tx, err := s.NewTx(s.ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	pid, err := pidOf(s.ctx, tx)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { // the wait has begun when it holds the first
		err := untilTrue(s.ctx, s.Pool, "LockAll holds the first key", "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = $1", pid)
		done <- errors.Join(err, s.meet())
	}()
	s.ends(xact.LockAll(s.ctx, tx, []advisory.Key{s.wants.Key, s.mine.Key}, s.wants.Mode))
	return errors.Join(<-done, s.txUsable(tx), tx.Commit())
}

func waitInTxDo(s *seat) error {
	return s.TxDo(s.ctx, s.mine.Key, func(ctx context.Context, tx xact.Tx) error {
		if err := s.meet(); err != nil {
			return err
		}
		s.ends(xact.Lock(ctx, tx, s.wants.Key, s.wants.Mode))
		return s.txUsable(tx)
	}, s.mine.Mode)
}

func waitByTxDo(s *seat) error { return s.waitByTxDo(nil) }

func waitByRepeatableTxDo(s *seat) error {
	return s.waitByTxDo(&sql.TxOptions{Isolation: sql.LevelRepeatableRead})
}

// waitByTxDo has its transactions on a connection that holds what is its.
func (s *seat) waitByTxDo(o *sql.TxOptions) error {
	conn, err := s.Pin(s.ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := sqlconn.Lock(s.ctx, conn, s.mine.Key, s.mine.Mode); err != nil {
		return err
	}
	if err := s.meet(); err != nil {
		return err
	}
	s.ends(xact.Do(s.ctx, harness.BeginOn(conn), s.wants.Key, s.txUsableIn, s.wants.Mode, xact.TxOptions(o)))
	return errors.Join(s.connUsable(conn), sqlconn.UnlockAll(s.ctx, conn))
}

// spare is a key that nobody else uses.
func (s *seat) spare() advisory.Key { return advisory.Name("spare", s.mine.Key.String()) }

func (s *seat) connUsable(conn sqlconn.Conn) error {
	ok, err := sqlconn.TryLock(s.ctx, conn, s.spare())
	if err == nil && !ok {
		err = errors.New("a free lock is not granted")
	}
	if err == nil {
		err = sqlconn.Unlock(s.ctx, conn, s.spare())
	}
	if err != nil {
		err = fmt.Errorf("the connection is not usable after %v: %w", s.err, err)
	}
	return err
}

func (s *seat) txUsableIn(_ context.Context, tx xact.Tx) error { return s.txUsable(tx) }

func (s *seat) txUsable(tx xact.Tx) error {
	ok, err := xact.TryLock(s.ctx, tx, advisory.Name("spare in a transaction", s.mine.Key.String()), xact.AnyIsolation())
	if err == nil && !ok {
		err = errors.New("a free lock is not granted")
	}
	if err != nil {
		err = fmt.Errorf("the transaction is not usable after %v: %w", s.err, err)
	}
	return err
}

// untilTrue waits for a query to say true.
func untilTrue(ctx context.Context, p *harness.Pool, what, query string, args ...any) error {
	for {
		var is bool
		if err := p.QueryRowContext(ctx, query, args...).Scan(&is); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if is {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func pidOf(ctx context.Context, on interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
},
) (pid int, err error) {
	rows, err := on.QueryContext(ctx, "SELECT pg_backend_pid()")
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	rows.Next()
	if err := rows.Scan(&pid); err != nil {
		return 0, err
	}
	return pid, rows.Err()
}
