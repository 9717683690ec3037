package conn_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/xact"
)

// A lateTx is a transaction on a bad link: the first statement that would start it over
// is lost, and the answer to the next comes when nobody waits for it any more.
type lateTx struct {
	*sql.Tx
	lost bool
}

var errLost = errors.New("a statement was lost")

func (tx *lateTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	switch {
	case !strings.HasPrefix(query, "ROLLBACK"):
		return tx.Tx.ExecContext(ctx, query, args...)
	case !tx.lost:
		tx.lost = true
		return nil, errLost
	}
	r, err := tx.Tx.ExecContext(context.WithoutCancel(ctx), query, args...)
	<-ctx.Done()
	return r, err
}

func (tx *lateTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if strings.HasPrefix(query, "ROLLBACK") && !tx.lost {
		tx.lost = true
		return nil, errLost
	}
	return tx.Tx.QueryContext(ctx, query, args...)
}

// A session that may hold the lock is not pooled, also if there was no time to find out.
func TestTxDoInDoubtEndsItsSession(t *testing.T) {
	pgtest.Slow(t)
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		p.SetMaxOpenConns(1)
		begin := func(ctx context.Context, o *sql.TxOptions) (*lateTx, error) {
			tx, err := p.BeginTx(ctx, o)
			return &lateTx{Tx: tx}, err
		}
		ran, err := xact.TryDo(t.Context(), begin, harness.Key,
			func(context.Context, *lateTx) error { return nil },
			xact.TxOptions(&sql.TxOptions{Isolation: sql.LevelRepeatableRead}))
		if ran || !errors.Is(err, errLost) {
			t.Fatal(ran, err)
		}
		if n := harness.Ask[int](t, p, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"); n != 0 {
			t.Error("the pooled connection holds the lock")
		}
		p.NoLocks(t)
	})
}

// A stuckTx does not return from Commit, during which its caller loses patience.
type stuckTx struct {
	*sql.Tx
	cancel context.CancelFunc
	stuck  <-chan struct{}
}

func (tx *stuckTx) Commit() error {
	tx.cancel()
	<-tx.stuck
	return errLost
}

func TestTxDoSaysThatCtxEndedDuringCommit(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	p := harness.Drivers[0].Open(t, pgtest.URL(t))
	ctx, cancel := context.WithCancel(t.Context())
	begin := func(ctx context.Context, o *sql.TxOptions) (*stuckTx, error) {
		tx, err := p.BeginTx(ctx, o)
		return &stuckTx{tx, cancel, t.Context().Done()}, err
	}
	err := xact.Do(ctx, begin, harness.Key, func(context.Context, *stuckTx) error { return nil })
	if !errors.Is(err, context.Canceled) || !errors.Is(err, bound.ErrNoAnswer) {
		t.Error(err)
	}
	p.NoLocks(t)
}
