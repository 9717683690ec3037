// Reconcile is a batch job that is scheduled on three nodes and must run on one:
// three processes try advisory lock 4820 at the same moment, the first gets it and
// works, the others are told so and step aside.
//
// The program plays director and workers, on a database of its own on the server
// that DATABASE_URL names, or else on a throwaway server. It checks on the server
// that all work was done once, and fails if not.
//
//	go run ./examples/reconcile
//	go run ./examples/reconcile -without-lock   # what happens without the lock
//
// What to copy is in worker.go; story.go and ledger.go are the staging.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"

	_ "github.com/lib/pq"

	"github.com/pgadvisory/pgadvisory/examples/internal/stage"
)

var withoutLock = flag.Bool("without-lock", false, "let the workers work without the lock, to see what it is good for")

func main() {
	flag.Parse()
	stage.Run(direct, work)
}

// work is a worker process: it makes a try each time that it is told to.
func work(ctx context.Context, role *stage.Role) error {
	db, err := sql.Open("postgres", role.URL)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.PingContext(ctx); err != nil {
		return err
	}
	role.Ready()
	for {
		line, ok := role.Hear()
		if !ok {
			return nil
		}
		var round int
		if _, err := fmt.Sscanf(line, "round %d", &round); err != nil {
			return err
		}
		var done int
		progress := func(account int) error {
			if done++; done == 1 { // stay in the middle of the work until the director has looked
				role.Say("working")
				if _, ok := role.Hear(); !ok {
					return errors.New("the director has left")
				}
			}
			return nil
		}
		ran := true
		if *withoutLock {
			err = reconcileWithoutLock(ctx, db, round, progress)
		} else {
			ran, err = reconcileIfFree(ctx, db, round, progress)
		}
		if err != nil {
			return err
		}
		role.Say(fmt.Sprint(ran, " ", done))
	}
}

func reconcileWithoutLock(ctx context.Context, db *sql.DB, round int, progress func(account int) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return reconcile(ctx, conn, round, progress)
}
