// Command pgadvisory takes PostgreSQL advisory locks for programs in any language, and
// shows who holds them.
//
//	pgadvisory run name:nightly -- command   a command under a lock, on one machine at a time
//	pgadvisory ls                           who holds what, and who waits
//	pgadvisory help                         all of it
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
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
	c, args, err := find(args)
	if err != nil {
		return p.report(err)
	}
	if c.signals { // it sees to them itself
		return p.report(c.parse(p, args)(context.Background()))
	}
	ctx, stop := untilSignal(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return p.report(c.parse(p, args)(ctx))
}

// untilSignal returns a ctx that ends with a signal, which is its cause.
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
