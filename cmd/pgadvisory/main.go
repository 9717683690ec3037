// Command pgadvisory takes PostgreSQL advisory locks for programs in any language, and
// shows who holds them.
//
//	pgadvisory run name:nightly -- command   a command under a lock, on one machine at a time
//	pgadvisory ls                           who holds what, and who waits
//	pgadvisory help                         help on all subcommands
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/bound"
)

func main() {
	if keeperWanted() {
		os.Exit(keeper(os.Stdin, os.Stdout))
	}
	p := &program{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	os.Exit(p.run(os.Args[1:]))
}

// A program is one run of pgadvisory.
type program struct {
	in, out, err *os.File
}

func (p *program) run(args []string) int {
	c, args, err := findCommand(args)
	if err != nil {
		return p.report(err)
	}
	if c.signals { // the command handles signals itself
		return p.report(c.parse(p, args)(context.Background()))
	}
	ctx, stop := untilSignal(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err = within(ctx, c.parse(p, args))
	if s, ok := errors.AsType[signalError](context.Cause(ctx)); ok && err != nil {
		err = s // it replaces the driver's error
	}
	return p.report(err)
}

// within calls f and returns in bounded time after the end of ctx. f may then still run: a
// driver may block on a link that drops packets.
func within(ctx context.Context, f func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(bound.Abort):
		return bound.ErrNoAnswer
	}
}

// untilSignal returns a ctx that ends with a signal. Its cause is a signalError.
func untilSignal(ctx context.Context, signals ...os.Signal) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := make(chan os.Signal, 1)
	signal.Notify(c, signals...)
	go func() {
		select {
		case s := <-c:
			signal.Stop(c) // a second one ends the program at once
			cancel(signalError{s.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() { signal.Stop(c); cancel(nil) }
}
