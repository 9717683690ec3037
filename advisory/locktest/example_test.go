package locktest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory/locktest"
)

var reconcile = advisory.Name("example", "reconcile")

// runReconcile is the code under test: a job of which one at a time is to run in the
// whole fleet.
func runReconcile(ctx context.Context, locker advisory.Locker, work func(context.Context) error) string {
	ran, err := locker.TryDo(ctx, reconcile, work)
	switch {
	case errors.Is(err, advisory.ErrLost):
		return "lost the lock, must check what was done"
	case err != nil:
		return err.Error()
	case !ran:
		return "another node is at it"
	}
	return "done"
}

func Example() {
	ctx := context.Background()
	locker := locktest.New()
	nothing := func(context.Context) error { return nil }

	fmt.Println(runReconcile(ctx, locker, nothing))

	release := locker.Occupy(reconcile)
	fmt.Println(runReconcile(ctx, locker, nothing))
	release()

	fmt.Println(runReconcile(ctx, locker, func(ctx context.Context) error {
		locker.Lose(reconcile)
		<-ctx.Done()
		return nil
	}))
	fmt.Println("held at the end:", locker.Holds(reconcile))

	// Output:
	// done
	// another node is at it
	// lost the lock, must check what was done
	// held at the end: false
}
