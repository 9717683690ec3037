package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/inspect"
)

var waitCommand = &command{
	name:    "wait",
	args:    "[flags] KEY",
	summary: "waits until a lock is free, and takes nothing",
	help: `
It looks who holds the lock, a few times a second, and is in nobody's way. When it returns, the lock
was free a moment ago: somebody else may have it again. To do something under it, see pgadvisory run.

  pgadvisory wait name:migrations && ./start
  pgadvisory wait -w 60 4820
`,
	setup: func(p *program, flags *flag.FlagSet) func(context.Context, []string) error {
		t := connection(flags)
		var limit seconds
		flags.Var(&limit, "w", "wait for at most so many `SECONDS`")
		shared := flags.Bool("s", false, "until it can be taken shared: readers do not matter")
		conflict := flags.Int("E", exitNo, "the exit `CODE` if the lock is not free in time")
		verbose := flags.Bool("v", false, "tell who holds the lock")
		return func(ctx context.Context, args []string) error {
			key, err := oneKey("wait", args)
			if err != nil {
				return err
			}
			if *conflict < 0 || *conflict > 255 {
				return usage("wait: -E %d: an exit code is from 0 to 255", *conflict)
			}
			db, err := t.open(ctx, "pgadvisory wait")
			if err != nil {
				return err
			}
			defer db.Close()
			tell := func(h advisory.Holder) {
				if *verbose {
					fmt.Fprintf(p.err, "pgadvisory: lock %v (%v) is held by %v\n", key, h.Mode, h)
				}
			}
			var late <-chan time.Time
			if limit.set {
				late = time.After(limit.Duration)
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, limit.Duration+answerLimit, errUnanswered)
				defer cancel()
			}
			err = within(ctx, func(ctx context.Context) error { return untilFree(ctx, db, key, *shared, late, tell) })
			switch {
			case err == errInTime:
				return exit(*conflict)
			case err != nil && context.Cause(ctx) != nil:
				return context.Cause(ctx)
			}
			return err
		}
	},
}

// answerLimit is for how long after the time to wait has passed the server may take to answer.
const answerLimit = 3 * time.Second

var (
	errInTime     = errors.New("not free in time")
	errUnanswered = fail(exitUnavailable, "the server did not answer in time")
)

// untilFree returns when nobody holds key in a way that would keep one from taking it.
// It tells who does whenever that changes. When it is late, and the key is not free, it is errInTime.
func untilFree(ctx context.Context, db *sql.DB, key advisory.Key, shared bool, late <-chan time.Time, tell func(advisory.Holder)) error {
	told := -1 // 0 is a prepared transaction
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		holders, err := inspect.Holders(ctx, db, key)
		if err != nil {
			return err
		}
		var in *advisory.Holder
		for i, h := range holders {
			if h.Mode == advisory.Exclusive || !shared {
				in = &holders[i]
			}
		}
		if in == nil {
			return nil
		}
		if in.PID != told {
			told = in.PID
			tell(*in)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late:
			return errInTime
		case <-time.After(pause):
		}
	}
}
