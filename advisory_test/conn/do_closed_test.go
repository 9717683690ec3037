package conn_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/locker"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// Work that closes its connection, against the rule, puts it back into the pool with the lock.
// That is told, and not as a loss where the driver knows: the lock is not gone.
func TestDoTellsThatTheWorkClosedTheConnection(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		err := p.Do(context.Background(), harness.Key, func(_ context.Context, c sqlconn.Conn) error { return c.Close() })
		// pgx does not say whether its connection still is a good one.
		if err == nil || errors.Is(err, advisory.ErrLost) != (p.By.Sql == "pgx") || !errors.Is(err, sql.ErrConnDone) || !strings.Contains(err.Error(), "fn closed") {
			t.Error(err)
		}
		if held, _ := p.Locks(t); held != 1 {
			t.Errorf("%d held", held)
		}
		// A connection that was lost is another thing, which database/sql tells by the same error.
		err = p.Do(context.Background(), advisory.Int64(1), func(_ context.Context, c sqlconn.Conn) error {
			_, err := c.ExecContext(context.Background(), "SELECT pg_terminate_backend(pg_backend_pid())")
			return err
		})
		if !errors.Is(err, advisory.ErrLost) || strings.Contains(err.Error(), "fn closed it") {
			t.Error(err)
		}
	})
}

// Waits for keys that others hold leave a connection of the pool to work under a lock.
func TestWaitsOfALockerLeaveAConnectionForWork(t *testing.T) {
	harness.Fair(t, func(t *testing.T, p *harness.Pool) {
		holder := p.By.Open(t, p.Url).Locker(t)
		for n := range 8 {
			harness.LockerTry(t, holder, advisory.Int64(int64(n)))
		}
		for _, size := range []int{2, 3, 4} {
			mine := p.By.Open(t, p.Url)
			mine.SetMaxOpenConns(size)
			l := mine.Locker(t)
			ctx, cancel := context.WithCancel(t.Context())
			for n := range 8 {
				go l.Lock(ctx, advisory.Int64(int64(n)))
			}
			harness.Eventually(t, "all wait", func() bool { return l.Stats().Waiting == 8 })
			err := l.Do(t.Context(), advisory.Int64(100), func(ctx context.Context) error {
				ctx, stop := context.WithTimeout(ctx, harness.Patience)
				defer stop()
				_, err := mine.ExecContext(ctx, "SELECT 1")
				return err
			})
			if err != nil {
				t.Errorf("a pool of %d: %v", size, err)
			}
			cancel()
		}
	})
}

func TestLocksCanBeLogged(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		lock, _ := harness.LockerTry(t, p.Locker(t), harness.Key, advisory.Shared)
		if s := fmt.Sprint(lock); s != "4820 (shared)" {
			t.Error(s)
		}
		if err := new(locker.Locker).Do(t.Context(), harness.Key, func(context.Context) error { return nil }); err == nil || !strings.Contains(err.Error(), "locker.New") {
			t.Error(err)
		}
	})
}
