package bound

import (
	"context"
	"errors"
	"time"
)

// ErrNoAnswer is returned for a call whose answer did not come in time.
var ErrNoAnswer = errors.New("no answer from the server in time, the connection was given up")

// Call calls f with ctx, from [Context], and returns what it returns, in bounded
// time after the end of ctx: if need be while f still runs, after a call of giveUp
// (if not nil), which may make it return.
//
// What f returns after the end of ctx is in doubt (a driver may report success
// on a dead connection): it goes to tooLate, on another goroutine if f came back
// too late to be waited for, and Call returns [ErrNoAnswer].
//
// A panic in f is one in Call.
func Call[T any](ctx context.Context, f func(context.Context) (T, error), giveUp func(), tooLate func(T, error)) (T, error) {
	if ctx.Done() == nil {
		return f(ctx)
	}
	var none T
	answers := start(ctx, f)
	var a answer[T]
	select {
	case a = <-answers:
	case <-ctx.Done():
		timer := time.NewTimer(Abort)
		defer timer.Stop()
		select {
		case a = <-answers:
		case <-timer.C:
			go func() {
				if giveUp != nil {
					giveUp()
				}
				if a := <-answers; !a.panicked {
					tooLate(a.value, a.err)
				}
			}()
			return none, ErrNoAnswer
		}
	}
	if a.panicked {
		panic(a.panic)
	}
	if ctx.Err() != nil {
		tooLate(a.value, a.err)
		return none, ErrNoAnswer
	}
	return a.value, a.err
}

// start calls f on a goroutine of its own, and sends what it returns, or the panic in it.
func start[T any](ctx context.Context, f func(context.Context) (T, error)) <-chan answer[T] {
	answers := make(chan answer[T], 1)
	go func() {
		deepen()
		a := answer[T]{panicked: true, panic: errGoexit}
		defer func() {
			if a.panicked {
				if v := recover(); v != nil {
					a.panic = v
				}
			}
			answers <- a
		}()
		a.value, a.err = f(ctx)
		a.panicked = false
	}()
	return answers
}

type answer[T any] struct {
	value    T
	err      error
	panicked bool
	panic    any
}

var errGoexit = errors.New("pgadvisory: runtime.Goexit in a call that a context bounds")
