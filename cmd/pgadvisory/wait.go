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
It checks a few times a second who holds the lock, and delays nobody. When it returns, the lock was
free a moment ago; another session may have taken it since. To work under the lock, see pgadvisory
run.

  pgadvisory wait name:migrations && ./start
  pgadvisory wait -w 60 4820
`,
	setup: func(p *program, flags *flag.FlagSet) func(context.Context, []string) error {
		t := connection(flags)
		var limit seconds
		flags.Var(&limit, "w", "wait for at most so many `SECONDS`")
		shared := flags.Bool("s", false, "wait until the lock can be taken shared: ignore readers")
		conflict := flags.Int("E", exitNo, "the exit `CODE` if the lock is not free in time")
		verbose := flags.Bool("v", false, "print who holds the lock")
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
			report := func(h advisory.Holder) {
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
			err = within(ctx, func(ctx context.Context) error { return untilFree(ctx, db, key, *shared, late, report) })
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

// answerLimit is how long the server may take to answer after the time to wait has passed.
const answerLimit = 3 * time.Second

var (
	errInTime     = errors.New("not free in time")
	errUnanswered = fail(exitUnavailable, "the server did not answer in time")
)

// untilFree returns when no session holds key in a mode that conflicts. It calls report with the
// holder whenever that changes. If late fires before the key is free, it returns errInTime.
func untilFree(ctx context.Context, db *sql.DB, key advisory.Key, shared bool, late <-chan time.Time, report func(advisory.Holder)) error {
	reported := -1 // 0 is a prepared transaction
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
		if in.PID != reported {
			reported = in.PID
			report(*in)
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
