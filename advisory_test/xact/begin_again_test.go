package xact_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/pgbouncer"
	"github.com/pgadvisory/pgadvisory/xact"
)

// A beginner counts its calls of BeginTx, and keeps when each returned.
type beginner struct {
	db    *sql.DB
	ended []time.Time
}

func (b *beginner) begin(ctx context.Context, o *sql.TxOptions) (*sql.Tx, error) {
	tx, err := b.db.BeginTx(ctx, o)
	b.ended = append(b.ended, time.Now())
	return tx, err
}

func nothing(context.Context, *sql.Tx) error { return nil }

// PgBouncer refuses a client that has waited for query_wait_timeout. Another attempt would wait again.
func TestBusyPoolerIsAskedOnce(t *testing.T) {
	server := pgtest.URL(t)
	for _, d := range harness.Drivers[:2] {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			p := d.Open(t, pgbouncer.New(t, server, pgbouncer.Options{Mode: pgbouncer.Transaction, PoolSize: 1, Settings: []string{"query_wait_timeout = 0.1"}}))
			harness.Eventually(t, "a transaction has the only session", func() bool {
				tx, err := p.NewTx(context.Background(), nil)
				if err == nil {
					t.Cleanup(func() { tx.Rollback() })
				}
				return err == nil
			})
			b := beginner{db: p.DB}
			err := xact.Do(t.Context(), b.begin, harness.Key, nothing)
			if err == nil || len(b.ended) != 1 {
				t.Errorf("begun %d times: %v", len(b.ended), err)
			}
		})
	}
}

// A load balancer without a server accepts connections and closes them.
func closing(t *testing.T) (url string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return "postgres://u@" + l.Addr().String() + "/d?sslmode=disable"
}

// Each connection of the pool may be dead, so Do begins again many times. If the connections are new
// ones, that is no use, and the server is not flooded.
func TestBeginsAgainWithPauses(t *testing.T) {
	url := closing(t)
	for _, d := range harness.Drivers[:2] {
		b := beginner{db: d.Open(t, url).DB}
		if err := xact.Do(t.Context(), b.begin, harness.Key, nothing); err == nil {
			t.Error("no error")
		}
		pause := time.Millisecond
		for i := range len(b.ended) - 1 {
			if passed := b.ended[i+1].Sub(b.ended[i]); passed < pause {
				t.Errorf("%s: attempt %d came %v after the one before, not %v", d.Name, i+2, passed, pause)
			}
			pause = min(2*pause, 50*time.Millisecond)
		}
		t.Logf("%s: %d attempts", d.Name, len(b.ended))
	}
}

// The end of ctx ends a pause.
func TestBeginsNoMoreAfterTheEndOfCtx(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	n := 0
	begin := func(context.Context, *sql.TxOptions) (*sql.Tx, error) {
		if n++; n == 3 {
			end()
		}
		return nil, &net.OpError{Op: "read", Err: errors.New("reset")}
	}
	err := xact.Do(ctx, begin, harness.Key, nothing)
	if !errors.Is(err, context.Canceled) || n != 3 {
		t.Errorf("begun %d times: %v", n, err)
	}
}
