//go:build linux || darwin || freebsd

package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/xact"
)

// pingEvery is the interval of the pings that check the transaction.
const pingEvery = 500 * time.Millisecond

var pingLimit = 10 * time.Second // for an answer to a ping; shorter in a test

// transaction holds the lock in an open transaction.
func (k *keep) transaction() error {
	ctx, acquired := k.acquiring()
	db, _, err := k.order.Settings.open(ctx, k.order.Application)
	if err != nil {
		acquired()
		return err
	}
	defer db.Close()
	start := time.Now()
	var calls []xact.BeginOption
	if k.order.Shared {
		calls = append(calls, advisory.Shared)
	}
	switch {
	case k.order.Once:
		calls = append(calls, advisory.MaxWait(0))
	case k.order.MaxWait != nil:
		calls = append(calls, advisory.MaxWait(*k.order.MaxWait))
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	held := held{}
	granted := false
	err = xact.Do(ctx, db.BeginTx, k.order.Key, func(_ context.Context, tx *sql.Tx) error {
		granted = true
		acquired()
		held.Waited = time.Since(start)
		return k.inTransaction(held, tx, func() { time.AfterFunc(pingLimit, func() { giveUp(errSilent()) }) })
	}, calls...)
	if !granted {
		acquired()
	}
	return err
}

// inTransaction keeps the lock of tx. It calls ends before tx is to end.
func (k *keep) inTransaction(h held, tx *sql.Tx, ends func()) error {
	// Turn off the timeouts that would end the idle transaction.
	const settings = `SELECT pg_catalog.set_config(s.name, '0', true) FROM pg_catalog.pg_settings s
		WHERE s.name IN ('idle_in_transaction_session_timeout', 'statement_timeout', 'transaction_timeout')`
	if err := ask(tx, settings); err != nil {
		return err
	}
	lost, end := context.WithCancelCause(context.Background())
	defer end(nil)
	pings := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(pings)
		tick := time.NewTicker(pingEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			if err := ask(tx, "SELECT 1"); err != nil {
				end(fmt.Errorf("%w: %w", advisory.ErrLost, err))
				return
			}
		}
	}()
	err := k.hold(h, lost.Done(), func() error { return context.Cause(lost) })
	ends()
	close(stop)
	<-pings
	return err
}

func errSilent() error { return fmt.Errorf("no answer from the server for %v", pingLimit) }

// ask runs a statement, for at most pingLimit. A driver may block on a link that drops packets; ask
// then returns without it.
func ask(tx *sql.Tx, statement string) error {
	answered := make(chan error, 1)
	go func() {
		_, err := tx.ExecContext(context.Background(), statement)
		answered <- err
	}()
	select {
	case err := <-answered:
		return err
	case <-time.After(pingLimit):
		return errSilent()
	}
}
