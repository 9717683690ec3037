package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

type driver struct{ name, sql string }

var drivers = []driver{{"lib/pq", "postgres"}, {"pgx", "pgx"}}

// A measurement compares two ways to do one thing.
type measurement struct {
	name    string
	against string  // what by hand is
	target  float64 // of the ratio, time by hand over ours: how many times quicker
	driver  string  // only with this one
	prepare func(ctx context.Context, e *env) (ours, hand func() (time.Duration, error), err error)
}

// An env is what a measurement works with. Its pools are fresh, and on one database.
type env struct {
	ctx  context.Context
	url  string
	open func() *sql.DB
	done []func()
}

func (e *env) defers(f func()) { e.done = append(e.done, f) }

type result struct {
	measurement
	driver     string
	ours, hand time.Duration // medians, per operation
	ratios     []float64     // hand/ours of each round, sorted
}

func (r result) median() float64 { return r.ratios[len(r.ratios)/2] }

func (r result) line() string {
	return fmt.Sprintf("%-44s %-7s %8.1f times quicker (%.1f to %.1f; target %.2f): %v against %v",
		r.name, r.driver, r.median(), r.ratios[0], r.ratios[len(r.ratios)-1], r.target, r.ours.Round(100*time.Nanosecond), r.hand.Round(100*time.Nanosecond))
}

// measure takes the two turn about, so that a machine whose speed drifts slows both.
func (m measurement) measure(ctx context.Context, server *pgtest.Server, d driver, rounds int) (r result, err error) {
	url, drop, err := server.CreateDatabase(ctx)
	if err != nil {
		return r, err
	}
	defer drop(context.WithoutCancel(ctx))
	e := &env{ctx: ctx, url: url}
	e.open = func() *sql.DB {
		db, err := sql.Open(d.sql, url)
		if err != nil {
			panic(err)
		}
		db.SetMaxIdleConns(64)
		e.defers(func() { db.Close() })
		return db
	}
	defer func() {
		for _, f := range slices.Backward(e.done) {
			f()
		}
	}()
	ours, hand, err := m.prepare(ctx, e)
	if err != nil {
		return r, err
	}
	var a, b []time.Duration
	for round := range rounds + 1 {
		x, err := ours()
		if err != nil {
			return r, fmt.Errorf("ours: %w", err)
		}
		y, err := hand()
		if err != nil {
			return r, fmt.Errorf("by hand: %w", err)
		}
		if round == 0 {
			continue // to warm up
		}
		a, b = append(a, x), append(b, y)
		r.ratios = append(r.ratios, float64(y)/float64(x))
	}
	slices.Sort(a)
	slices.Sort(b)
	slices.Sort(r.ratios)
	r.measurement, r.driver, r.ours, r.hand = m, d.name, a[len(a)/2], b[len(b)/2]
	return r, nil
}

// each times n operations and returns the time of one.
func each(n int, do func(i int) error) (time.Duration, error) {
	start := time.Now()
	for i := range n {
		if err := do(i); err != nil {
			return 0, err
		}
	}
	return time.Since(start) / time.Duration(n), nil
}
