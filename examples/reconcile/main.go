// Reconcile is a batch job that is scheduled on three nodes and must run on one. Three processes try
// advisory lock 4820 at the same moment. The first one gets it and works; the others get false and do
// nothing.
//
// The program plays the director and the workers. It uses a database of its own on the server of
// DATABASE_URL, or on a temporary server. It checks on the server that all work was done once, and
// fails if not.
//
//	go run ./examples/reconcile
//	go run ./examples/reconcile -without-lock   # what happens without the lock
//
// Copy from worker.go. The files story.go and ledger.go only stage it.
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

var withoutLock = flag.Bool("without-lock", false, "let the workers work without the lock, to show what the lock prevents")

func main() {
	flag.Parse()
	stage.Run(direct, work)
}

// work is a worker process: it makes a try each time that the director asks.
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
			if done++; done == 1 { // pause in the middle of the work until the director has read the holders
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
