package xact_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/xact"
)

// formattingTx writes arguments into the text, as bun's does: what the text has no place for is
// not sent.
type formattingTx struct{ *sql.Tx }

func (tx formattingTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return tx.Tx.ExecContext(ctx, query)
}

func (tx formattingTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return tx.Tx.QueryContext(ctx, query)
}

// A caller's own types around it.
type (
	wrappedTx  struct{ formattingTx }
	wrappedTwo struct{ *wrappedTx }
	anyTx      struct{ xact.Tx }
)

// The transactions of other libraries, and a caller's types around them.
func TestWrappedTransactions(t *testing.T) {
	ctx := context.Background()
	keys := []advisory.Key{advisory.Int64(1), advisory.Int64(2)}
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		for name, wrap := range map[string]func(*sql.Tx) xact.Tx{
			"formatting":       func(tx *sql.Tx) xact.Tx { return formattingTx{tx} },
			"around it":        func(tx *sql.Tx) xact.Tx { return wrappedTx{formattingTx{tx}} },
			"around that":      func(tx *sql.Tx) xact.Tx { return wrappedTwo{&wrappedTx{formattingTx{tx}}} },
			"an interface":     func(tx *sql.Tx) xact.Tx { return anyTx{tx} },
			"around interface": func(tx *sql.Tx) xact.Tx { return &anyTx{anyTx{formattingTx{tx}}} },
		} {
			begin := func(ctx context.Context, o *sql.TxOptions) (xact.Tx, error) {
				tx, err := p.DB.BeginTx(ctx, o)
				if err != nil {
					return nil, err
				}
				return wrap(tx), nil
			}
			err := xact.Do(ctx, begin, harness.Key, func(ctx context.Context, tx xact.Tx) error {
				free, err := xact.TryLockAll(ctx, tx, keys)
				if err == nil && !free {
					err = errors.New("busy")
				}
				if err != nil {
					return err
				}
				if err := xact.Lock(ctx, tx, keys[0]); !errors.Is(err, advisory.ErrAlreadyHeld) {
					t.Errorf("%s: %v", name, err)
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, tx := range map[string]xact.Tx{
			"formatting":   formattingTx{},
			"around it":    wrappedTx{},
			"around that":  wrappedTwo{&wrappedTx{}},
			"an interface": anyTx{(*sql.Tx)(nil)},
		} {
			if _, err := xact.TryLock(ctx, tx, harness.Key); err == nil || !strings.Contains(err.Error(), "tx is nil") {
				t.Errorf("%s around nil: %v", name, err)
			}
		}
	})
}

// endingTx ends the caller's ctx when a statement was answered.
type endingTx struct {
	xact.Tx
	end func()
}

func (tx endingTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	defer tx.end()
	return tx.Tx.ExecContext(ctx, query, args...)
}

func (tx endingTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	defer tx.end()
	return tx.Tx.QueryContext(ctx, query, args...)
}

// Where ctx ends before the answer has come a try returns ctx's error, whatever the answer, and
// the transaction is usable.
func TestTriesInATransactionWhoseCtxEndsMeanwhile(t *testing.T) {
	keys := []advisory.Key{advisory.Int64(1), advisory.Int64(2)}
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		for name, try := range map[string]func(context.Context, xact.Tx) (bool, error){
			"TryLock":    func(ctx context.Context, tx xact.Tx) (bool, error) { return xact.TryLock(ctx, tx, keys[1]) },
			"TryLockAll": func(ctx context.Context, tx xact.Tx) (bool, error) { return xact.TryLockAll(ctx, tx, keys) },
			"TryLockAny": func(ctx context.Context, tx xact.Tx) (bool, error) {
				_, ok, err := xact.TryLockAny(ctx, tx, keys[1:])
				return ok, err
			},
		} {
			for _, busy := range []bool{false, true} {
				holder := p.NewConn(t)
				if busy {
					harness.TryLock(t, holder, keys[1])
				}
				ctx, cancel := context.WithCancel(context.Background())
				tx := p.Tx(t, nil)
				ok, err := try(ctx, endingTx{tx, cancel})
				if ok || !errors.Is(err, context.Canceled) || errors.Is(err, advisory.ErrNotAcquired) {
					t.Errorf("%s, busy %v: %v, %v", name, busy, ok, err)
				}
				harness.DoSQL(t, tx, "SELECT 1")
				tx.Rollback()
				if busy {
					harness.Unlock(t, holder, keys[1])
				}
				holder.Close()
			}
		}
		p.NoLocks(t)
	})
}
