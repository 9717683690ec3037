package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// nativePool is a pool of pgx's own, without database/sql. It prepares each statement once for
// each connection.
func nativePool(ctx context.Context, e *env, size int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(e.url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = size
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	e.defers(pool.Close)
	return pool, nil
}

// few is what a service with little to do does at a time.
func few(ctx context.Context, e *env) (ours, hand func() (time.Duration, error), err error) {
	const many, n = 4, 4000
	pool, err := nativePool(ctx, e, many)
	if err != nil {
		return nil, nil, err
	}
	return throughLocker(ctx, e, many, n), func() (time.Duration, error) {
		return goroutines(many, n, func(g int) error {
			c, err := pool.Acquire(ctx)
			if err != nil {
				return err
			}
			defer c.Release()
			for _, text := range []string{tryByHand, unlockByHand} {
				if err := taken(c.QueryRow(ctx, text, int64(g+1000))); err != nil {
					return err
				}
			}
			return nil
		})
	}, nil
}

// batches compares with the quickest way that pgx has for work that needs no time.
func batches(ctx context.Context, e *env) (ours, hand func() (time.Duration, error), err error) {
	pool, err := nativePool(ctx, e, 16)
	if err != nil {
		return nil, nil, err
	}
	return throughLocker(ctx, e, 256, 50_000), func() (time.Duration, error) {
		return goroutines(256, 20_000, func(g int) error {
			var batch pgx.Batch
			batch.Queue(tryByHand, int64(g+1000))
			batch.Queue(unlockByHand, int64(g+1000))
			answers := pool.SendBatch(ctx, &batch)
			return errors.Join(taken(answers.QueryRow()), taken(answers.QueryRow()), answers.Close())
		})
	}, nil
}

func taken(answer pgx.Row) error {
	var ok bool
	if err := answer.Scan(&ok); err != nil {
		return err
	}
	if !ok {
		return errNotTaken
	}
	return nil
}
